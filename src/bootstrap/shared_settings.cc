#include "bootstrap/shared_settings.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "bootstrap/rank_list.h"
#include "status/error.h"

namespace narrowcast::bootstrap {
namespace {

// Removes the first line of a text and returns it.
std::string_view take_line(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

using RanksByLine = std::map<std::string_view, std::vector<int>>;

ncast_status differs(const RanksByLine& ranks_by_line) {
  // Of equally common values, that of the lowest rank comes first.
  const auto comes_first = [](const auto& a, const auto& b) {
    return a->second.size() != b->second.size() ? a->second.size() > b->second.size() : a->second[0] < b->second[0];
  };
  std::vector<RanksByLine::const_iterator> lines;
  for (auto line = ranks_by_line.begin(); line != ranks_by_line.end(); ++line) lines.push_back(line);
  std::ranges::sort(lines, comes_first);
  const std::string_view named = ranks_by_line.rbegin()->first;  // not that of a rank that lacks the setting
  const std::string name(named.substr(0, named.find('=')));
  const auto value_of = [](std::string_view line) {
    return line.empty() ? "unknown" : std::string(line.substr(line.find('=') + 1));
  };
  const auto ranks_of = [](const std::vector<int>& ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + rank_list(ranks);
  };
  const auto& [common_line, common_ranks] = *lines[0];
  const auto& [line, ranks] = *lines.back();
  return fail(NCAST_MISMATCH, "%s is %s on %s, but %s on %s", name.c_str(), value_of(line).c_str(),
              ranks_of(ranks).c_str(), value_of(common_line).c_str(), ranks_of(common_ranks).c_str());
}

}  // namespace

SharedSettings::SharedSettings() { static_cast<void>(add("the version of the library", ncast_version())); }

ncast_status SharedSettings::add(std::string_view name, std::string_view value) {
  const std::string line = std::string(name) + "=" + std::string(value) + "\n";
  if (line.size() > sizeof text_ - bytes_) return fail(NCAST_INTERNAL, "too many settings for ranks to compare");
  std::memcpy(text_ + bytes_, line.data(), line.size());
  bytes_ += static_cast<uint32_t>(line.size());
  return NCAST_OK;
}

ncast_status check_same_settings(std::span<const SharedSettings> by_rank) {
  std::vector<std::string_view> texts;
  for (const SharedSettings& settings : by_rank) texts.push_back(settings.text());
  while (!std::ranges::all_of(texts, &std::string_view::empty)) {
    RanksByLine ranks_by_line;
    for (size_t rank = 0; rank < texts.size(); ++rank)
      ranks_by_line[take_line(&texts[rank])].push_back(static_cast<int>(rank));
    if (ranks_by_line.size() > 1) return differs(ranks_by_line);
  }
  return NCAST_OK;
}

}  // namespace narrowcast::bootstrap
