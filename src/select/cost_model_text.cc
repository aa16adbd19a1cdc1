// The text of a cost model: what docs/guide/tuning.md says.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "channel/peer/peers.h"
#include "select/cost_model.h"
#include "status/error.h"

namespace narrowcast::select {

extern const char* const shipped_costs;  // h200.costs, made a string by cmake/shipped_costs.cmake

namespace {

constexpr std::string_view heading = "narrowcast-costs 1 ";
constexpr size_t most_text_bytes = size_t{1} << 20;

constexpr Operation measured_operations[] = {Operation::send,       Operation::broadcast,      Operation::reduce,
                                             Operation::gather,     Operation::scatter,        Operation::all_gather,
                                             Operation::all_to_all, Operation::reduce_scatter, Operation::all_reduce};
constexpr Path all_paths[] = {Path::packets,       Path::raw,  Path::window,
                              Path::window_random, Path::nccl, Path::nccl_default};

const char* short_name(Operation operation) { return function_name(operation) + std::strlen("ncast_"); }

// Takes the next word off the line; empty at its end.
std::string_view take_word(std::string_view* line) {
  const size_t begin = std::min(line->find_first_not_of(' '), line->size());
  const size_t end = std::min(line->find(' ', begin), line->size());
  const std::string_view word = line->substr(begin, end - begin);
  line->remove_prefix(end);
  return word;
}

template <typename Number>
bool read_number(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// What is wrong; empty when nothing is.
std::string read_point(std::string_view word, const std::vector<Curve::Point>& before, Curve::Point* point) {
  const size_t colon = word.find(':');
  uint64_t bytes = 0;
  if (colon == std::string_view::npos || !read_number(word.substr(0, colon), &bytes) ||
      !read_number(word.substr(colon + 1), &point->microseconds))
    return "'" + std::string(word) + "' is not BYTES:MICROSECONDS";
  if (bytes == 0 || !std::isfinite(point->microseconds) || point->microseconds <= 0)
    return "'" + std::string(word) + "' has to be more than 0";
  point->bytes = static_cast<double>(bytes);
  if (!before.empty() && before.back().bytes >= point->bytes)
    return "the bytes of '" + std::string(word) + "' do not ascend";
  return {};
}

std::string read_curve(std::string_view line, MeasuredCurve* curve) {
  const auto quoted = [](std::string_view word) { return "'" + std::string(word) + "'"; };
  std::string_view word = take_word(&line);
  const auto* const operation =
      std::ranges::find_if(measured_operations, [&](Operation one) { return word == short_name(one); });
  if (operation == std::end(measured_operations)) return quoted(word) + " is not an operation that is measured";
  curve->operation = *operation;

  word = take_word(&line);
  if (!read_number(word, &curve->ranks) || curve->ranks < 2 || curve->ranks > channel::max_gpu_ranks)
    return quoted(word) + " is not a number of ranks, 2 to " + std::to_string(channel::max_gpu_ranks);

  word = take_word(&line);
  curve->over_host = word == "host";
  if (word != "peer" && word != "host") return quoted(word) + " is not a link: peer or host";

  word = take_word(&line);
  const auto* const path = std::ranges::find_if(all_paths, [&](Path one) { return word == path_name(one); });
  if (path == std::end(all_paths)) return quoted(word) + " is not a path";
  curve->path = *path;

  for (word = take_word(&line); !word.empty(); word = take_word(&line)) {
    Curve::Point point = {};
    if (std::string wrong = read_point(word, curve->points, &point); !wrong.empty()) return wrong;
    curve->points.push_back(point);
  }
  return curve->points.empty() ? "the curve has no points" : "";
}

ncast_status read_file(const char* path, const char* setting, std::string* text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rbe"), std::fclose);
  const auto failed = [&](const char* why) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s cannot be read: %s", setting, path, why);
  };
  if (file == nullptr) return failed(std::strerror(errno));
  text->resize(most_text_bytes + 1);
  text->resize(std::fread(text->data(), 1, text->size(), file.get()));
  if (std::ferror(file.get()) != 0) return failed(std::strerror(errno));
  if (text->size() > most_text_bytes) return failed("it has more than 1 MiB");
  return NCAST_OK;
}

}  // namespace

const CostModel& CostModel::shipped() {
  static const CostModel model = [] {
    CostModel made;
    if (parse(shipped_costs, "h200.costs", &made) != NCAST_OK) throw std::logic_error(ncast_last_error());
    return made;
  }();
  return model;
}

ncast_status CostModel::load(const std::string& path, const std::string& setting, CostModel* model) {
  std::string text;
  if (ncast_status status = read_file(path.c_str(), setting.c_str(), &text)) return status;
  return parse(std::move(text), path.c_str(), model);
}

ncast_status CostModel::parse(std::string text, const char* name, CostModel* model) {
  *model = {};
  model->text_ = std::move(text);
  int number = 0;
  for (std::string_view rest = model->text_; !rest.empty() || number == 0;) {
    ++number;
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (number == 1) {
      if (line.starts_with(heading)) continue;
      return fail(NCAST_INVALID_ARGUMENT, "%s, line 1: it does not begin with '%.*s' and the name of a machine", name,
                  static_cast<int>(heading.size() - 1), heading.data());
    }
    if (line.empty() || line.front() == '#') continue;
    MeasuredCurve curve;
    std::string wrong = read_curve(line, &curve);
    if (wrong.empty() && !model->add(curve)) wrong = "the curve was given before";
    if (!wrong.empty()) return fail(NCAST_INVALID_ARGUMENT, "%s, line %d: %s", name, number, wrong.c_str());
  }
  // What is chosen among has to be comparable.
  for (const Operation operation : measured_operations) {
    for (const bool over_host : {false, true}) {
      for (const Measured& measured : model->family(operation, over_host)) {
        for (const Path path : {Path::raw, Path::window}) {
          if (measured.curves[static_cast<size_t>(path)]) continue;
          return fail(NCAST_INVALID_ARGUMENT, "%s: there is no line '%s %d %s %s'", name, short_name(operation),
                      measured.ranks, over_host ? "host" : "peer", path_name(path));
        }
      }
    }
  }
  return NCAST_OK;
}

}  // namespace narrowcast::select
