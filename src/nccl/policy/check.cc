#include "nccl/policy/check.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "files/read_file.h"
#include "nccl/report/json.h"
#include "nccl/report/log.h"
#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

bool has_wildcards(const std::string& pattern) { return pattern.find_first_of("*?[") != pattern.npos; }

// Whether the conditions on communicators hold for all that those of the later rule hold for. False if unsure.
bool covers_communicators(const Rule& earlier, const Rule& later) {
  const std::string &pattern = earlier.communicator, &name = later.communicator;
  return (!earlier.ranks || earlier.ranks == later.ranks) &&
         (pattern.empty() || pattern == "*" || pattern == name ||
          (!name.empty() && !has_wildcards(name) && matches_name(pattern, name)));
}

// Adds the first rules that together match the calls of all sizes of the last one. redop: nullopt: of an operation that
// does not reduce. Returns false if they leave some.
bool cover_sizes(const std::vector<Rule>& rules, size_t last, size_t operation, size_t dtype,
                 std::optional<size_t> redop, std::vector<bool>* used) {
  const auto covers = [&](const Rule& rule, uint64_t bytes) {
    return rule.operations[operation] && rule.dtypes[dtype] && (!redop || rule.redops[*redop]) &&
           rule.min_bytes <= bytes && bytes <= rule.max_bytes && covers_communicators(rule, rules[last]);
  };
  for (uint64_t bytes = rules[last].min_bytes;;) {
    size_t by = 0;
    while (by < last && !covers(rules[by], bytes)) ++by;
    if (by == last) return false;
    (*used)[by] = true;
    if (rules[by].max_bytes >= rules[last].max_bytes) return true;
    bytes = rules[by].max_bytes + 1;
  }
}

std::string list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() == 1 ? "" : ",") + item;
  return text + "]";
}

std::string object(std::initializer_list<std::pair<const char*, std::string>> members) {
  std::string text = "{";
  for (const auto& [name, value] : members) text += (text.size() == 1 ? "" : ",") + json_string(name) + ":" + value;
  return text + "}";
}

template <size_t size>
std::string names_json(const std::bitset<size>& set, const char* const* names) {
  std::vector<std::string> items;
  for (size_t i = 0; i < size; ++i)
    if (set[i]) items.push_back(json_string(names[i]));
  return list(items);
}

std::string codec_json(const std::optional<ncast_codec>& codec) {
  return codec ? json_string(codec_text(*codec)) : "null";
}
std::string take_json(const std::optional<TakeMode>& take) {
  return take ? json_string(take_names[static_cast<size_t>(*take)]) : "null";
}

std::string rule_json(const Settings& settings, size_t index) {
  const Rule& rule = settings.rules[index];
  std::vector<std::string> covering;
  for (const std::string& name : covered_by(settings, index)) covering.push_back(json_string(name));
  const bool any_reduces = (rule.operations & reducing_operations()).any();
  Operations operations = rule.operations;
  operations[NCAST_OP_RECV] = operations[NCAST_OP_SEND];
  return object({{"name", json_string(rule.name)},
                 {"line", std::to_string(rule.line)},
                 {"operations", names_json(operations, operation_names)},
                 {"dtypes", names_json(rule.dtypes, dtype_names)},
                 {"reductions", names_json(any_reduces ? rule.redops : Redops(), redop_names)},
                 {"min_bytes", std::to_string(rule.min_bytes)},
                 {"max_bytes", rule.max_bytes == UINT64_MAX ? "null" : std::to_string(rule.max_bytes)},
                 {"ranks", rule.ranks ? std::to_string(*rule.ranks) : "null"},
                 {"communicator", rule.communicator.empty() ? "null" : json_string(rule.communicator)},
                 {"codec", codec_json(rule.codec)},
                 {"result_codec", codec_json(rule.result_codec)},
                 {"take", take_json(rule.take)},
                 {"lossy", rule.is_lossy() ? "true" : "false"},
                 {"covered_by", list(covering)}});
}

}  // namespace

std::vector<std::string> covered_by(const Settings& settings, size_t rule) {
  const Rule& own = settings.rules[rule];
  std::vector<bool> used(rule);
  bool is_off = false;
  for (size_t operation = 0; operation < own.operations.size(); ++operation) {
    // Rules treat receives as their sends.
    if (!own.operations[operation] || operation == NCAST_OP_RECV) continue;
    if (settings.off[operation] || (operation == NCAST_OP_SEND && settings.off[NCAST_OP_RECV])) {
      is_off = true;
      continue;
    }
    for (size_t dtype = 0; dtype < own.dtypes.size(); ++dtype) {
      if (!own.dtypes[dtype]) continue;
      if (!reduces(static_cast<Operation>(operation))) {
        if (!cover_sizes(settings.rules, rule, operation, dtype, std::nullopt, &used)) return {};
        continue;
      }
      for (size_t redop = 0; redop < own.redops.size(); ++redop)
        if (own.redops[redop] && !cover_sizes(settings.rules, rule, operation, dtype, redop, &used)) return {};
    }
  }
  std::vector<std::string> names;
  if (is_off) names.emplace_back("off");
  for (size_t i = 0; i < rule; ++i)
    if (used[i]) names.push_back(settings.rules[i].name);
  return names;
}

std::string check_policy(const std::string& path) {
  const CollectedWarnings warnings(true);
  Settings settings;
  std::string content;
  if (const std::string error = files::read_file(path, most_file_bytes, &content); !error.empty())
    log(Level::warn, "cannot read %s: %s", path.c_str(), error.c_str());
  else
    parse_file(content, path, &settings);
  std::vector<std::string> faults, codecs, rules;
  for (const std::string& message : warnings.messages()) faults.push_back(json_string(message));
  for (size_t i = 0; i < operation_count; ++i)
    if (const auto& codec = settings.fallback_codec[i])
      codecs.push_back(object({{"operation", json_string(operation_names[i])},
                               {"codec", codec_json(codec)},
                               {"lossy", is_exact(*codec) ? "false" : "true"}}));
  for (size_t i = 0; i < settings.rules.size(); ++i) rules.push_back(rule_json(settings, i));
  return object({{"faults", list(faults)},
                 {"codec", list(codecs)},
                 {"take", take_json(settings.fallback_take)},
                 {"rules", list(rules)}});
}

}  // namespace narrowcast::nccl
