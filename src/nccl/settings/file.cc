// NARROWCAST_CONFIG: a TOML file with settings as keys, and with rules and plans, which only the file
// supports.
#include <climits>
#include <span>

#define TOML_EXCEPTIONS 0
#include <tomlplusplus/toml.hpp>

#include "nccl/report/log.h"
#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

constexpr const char* dtype_names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                       "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};

constexpr const char* redop_names[] = {"sum", "prod", "max", "min", "avg"};

std::optional<ncast_dtype> dtype_named(std::string_view name) {
  const auto* const found = std::ranges::find(dtype_names, name);
  if (found == std::end(dtype_names)) return std::nullopt;
  return static_cast<ncast_dtype>(found - std::begin(dtype_names));
}

// A value in the form of an environment variable: true is 1, lists are joined with commas.
std::optional<std::string> as_text(const toml::node& node) {
  if (const auto* const flag = node.as_boolean()) return flag->get() ? "1" : "0";
  if (const auto* const text = node.as_string()) return text->get();
  if (const auto* const number = node.as_integer()) return std::to_string(number->get());
  if (const auto* const number = node.as_floating_point()) return std::to_string(number->get());
  if (const auto* const list = node.as_array()) {
    std::string joined;
    for (const toml::node& entry : *list) {
      const auto text = as_text(entry);
      if (!text) return std::nullopt;
      joined += (joined.empty() ? "" : ",") + *text;
    }
    return joined;
  }
  return std::nullopt;
}

// The keys of tables, and what their values must be.
struct TableKey {
  std::string_view name;
  const char* valid;
};
constexpr TableKey rule_keys[] = {{"codec", "auto or a codec"},
                                  {"dtype", "a value type, such as bfloat16"},
                                  {"operation", "an operation, such as all_reduce"},
                                  {"take", "auto, always or never"}};
constexpr TableKey plan_keys[] = {{"dtype", "a value type, such as bfloat16, or a list of them"},
                                  {"file", "the name of a file"},
                                  {"op", "a reduction, such as sum, or a list of them"},
                                  {"use", "always or faster"}};
constexpr TableKey condition_keys[] = {{"communicator", "a name"},
                                       {"max_bytes", "a number of bytes"},
                                       {"min_bytes", "a number of bytes"},
                                       {"ranks", "a number"}};

// Why a key of a table, or its value, is invalid. own: the keys besides those of conditions.
std::string fault_of(std::string_view key, std::span<const TableKey> own) {
  std::vector<std::string> names;
  for (const std::span<const TableKey> keys : {own, std::span<const TableKey>(condition_keys)}) {
    for (const TableKey& known : keys) {
      if (known.name == key) return std::string(key) + " must be " + known.valid;
      names.emplace_back(known.name);
    }
  }
  return "there is no key " + std::string(key) + " (known: " + joined(names) + ")";
}

bool apply_to_conditions(std::string_view key, const toml::node& node, Conditions* conditions) {
  if (key == "communicator") return !(conditions->communicator = node.value_or(std::string())).empty();
  const int64_t number = node.is_integer() ? node.as_integer()->get() : -1;
  if (number < 0 || (key == "ranks" && number > INT_MAX)) return false;
  if (key == "min_bytes")
    conditions->min_bytes = static_cast<uint64_t>(number);
  else if (key == "max_bytes")
    conditions->max_bytes = static_cast<uint64_t>(number);
  else if (key == "ranks")
    conditions->ranks = static_cast<int>(number);
  else
    return false;
  return true;
}

bool apply_to_rule(std::string_view key, const toml::node& node, Rule* rule) {
  const std::string text = node.value_or(std::string());
  if (key == "operation") {
    rule->operation = operation_named(text);
    if (rule->operation == NCAST_OP_RECV) rule->operation = NCAST_OP_SEND;  // a receive follows its send
    return rule->operation.has_value();
  }
  if (key == "dtype") return (rule->dtype = dtype_named(text)).has_value();
  if (key == "codec") return (rule->codec = parse_codec(text).codec).has_value();
  if (key == "take") return (rule->take = take_named(text)).has_value();
  return apply_to_conditions(key, node, rule);
}

std::optional<ncast_redop> redop_named(std::string_view name) {
  const auto* const found = std::ranges::find(redop_names, name);
  if (found == std::end(redop_names)) return std::nullopt;
  return static_cast<ncast_redop>(found - std::begin(redop_names));
}

// A name, or a list of names.
template <typename Value>
bool read_names(const toml::node& node, std::optional<Value> (*named)(std::string_view), std::vector<Value>* values) {
  const auto add = [&](const toml::node& one) {
    const auto value = named(one.value_or(std::string()));
    if (value) values->push_back(*value);
    return value.has_value();
  };
  const auto* const list = node.as_array();
  return list == nullptr ? add(node) : !list->empty() && std::ranges::all_of(*list, add);
}

bool apply_to_plan(std::string_view key, const toml::node& node, PlanRule* rule) {
  const std::string text = node.value_or(std::string());
  if (key == "file") return !(rule->file = text).empty();
  if (key == "dtype") return read_names(node, dtype_named, &rule->dtypes);
  if (key == "op") return read_names(node, redop_named, &rule->redops);
  if (key == "use") {
    rule->always = text == "always";
    return text == "always" || text == "faster";
  }
  return apply_to_conditions(key, node, rule);
}

// Reads the tables of a list, [[name]]. One that is not entirely valid is ignored: it might match too many calls.
template <typename Entry>
void apply_tables(const toml::node& node, const char* name, const std::string& path, std::span<const TableKey> keys,
                  bool (*apply)(std::string_view, const toml::node&, Entry*), std::vector<Entry>* entries) {
  const auto* const list = node.as_array();
  if (list == nullptr || !std::ranges::all_of(*list, [](const toml::node& entry) { return entry.is_table(); })) {
    log(Level::warn, "%s: %s is not a list of tables: write [[%s]]", path.c_str(), name, name);
    return;
  }
  for (const toml::node& entry : *list) {
    Entry made;
    bool is_valid = true;
    for (const auto& [key, value] : *entry.as_table()) {
      if (apply(key.str(), value, &made)) continue;
      is_valid = false;
      log(Level::warn, "%s:%u: in a %s, %s. The %s is ignored", path.c_str(), value.source().begin.line, name,
          fault_of(key.str(), keys).c_str(), name);
    }
    if (is_valid) entries->push_back(made);
  }
}

void warn_unknown(std::string_view key, const std::string& place) {
  if (contains(environment_only, key)) {
    log(Level::warn, "%s: %s is not read from a file: set %s", place.c_str(), std::string(key).c_str(),
        variable_of(key).c_str());
    return;
  }
  std::vector<std::string> known(std::begin(keys), std::end(keys));
  known.emplace_back("rule");
  known.emplace_back("plan");
  std::ranges::sort(known);
  log(Level::warn, "%s: %s is not a setting (known: %s)", place.c_str(), std::string(key).c_str(),
      joined(known).c_str());
}

}  // namespace

void apply_file(std::string_view content, const std::string& path, Settings* settings) {
  const toml::parse_result parsed = toml::parse(content, path);
  if (!parsed) {
    log(Level::warn, "%s:%u: %s. The file is ignored", path.c_str(), parsed.error().source().begin.line,
        std::string(parsed.error().description()).c_str());
    return;
  }
  // Keys of a file rank below its rules, and rules below variables.
  const auto swap_fallbacks = [settings] {
    std::ranges::swap(settings->codec, settings->fallback_codec);
    std::swap(settings->take, settings->fallback_take);
  };
  swap_fallbacks();
  for (const auto& [key, value] : parsed.table()) {
    if (key.str() == "rule") {
      apply_tables(value, "rule", path, rule_keys, apply_to_rule, &settings->rules);
      continue;
    }
    if (key.str() == "plan") {
      apply_tables(value, "plan", path, plan_keys, apply_to_plan, &settings->plan_rules);
      continue;
    }
    const std::string place = path + ":" + std::to_string(value.source().begin.line);
    const auto text = as_text(value);
    if (!contains(keys, key.str()))
      warn_unknown(key.str(), place);
    else if (!text)
      log(Level::warn, "%s: %s has a value of an unsupported type", place.c_str(), std::string(key.str()).c_str());
    else
      apply_setting(key.str(), *text, place, settings);
  }
  swap_fallbacks();
}

}  // namespace narrowcast::nccl
