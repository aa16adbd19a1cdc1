// NARROWCAST_CONFIG: a TOML file with settings as keys, and with rules, which only the file supports.
#define TOML_EXCEPTIONS 0
#include <tomlplusplus/toml.hpp>

#include "nccl/report/log.h"
#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

constexpr const char* dtype_names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                       "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};

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

bool apply_to_rule(std::string_view key, const toml::node& node, Rule* rule) {
  const std::string text = node.value_or(std::string());
  const int64_t number = node.is_integer() ? node.as_integer()->get() : -1;
  if (key == "operation") {
    rule->operation = operation_named(text);
    if (rule->operation == NCAST_OP_RECV) rule->operation = NCAST_OP_SEND;  // a receive follows its send
    return rule->operation.has_value();
  }
  if (key == "dtype") return (rule->dtype = dtype_named(text)).has_value();
  if (key == "codec") return (rule->codec = parse_codec(text).codec).has_value();
  if (key == "take") return (rule->take = take_named(text)).has_value();
  if (key == "communicator") return !(rule->communicator = text).empty();
  if (number < 0) return false;
  if (key == "min_bytes")
    rule->min_bytes = static_cast<uint64_t>(number);
  else if (key == "max_bytes")
    rule->max_bytes = static_cast<uint64_t>(number);
  else if (key == "ranks")
    rule->ranks = static_cast<int>(number);
  else
    return false;
  return true;
}

// A rule that is not entirely valid is ignored: it might match too many calls.
void apply_rules(const toml::node& node, const std::string& path, Settings* settings) {
  const auto* const list = node.as_array();
  if (list == nullptr) {
    log(Level::warn, "%s: rule is not a list of tables: write [[rule]]", path.c_str());
    return;
  }
  for (const toml::node& entry : *list) {
    Rule rule;
    bool is_valid = entry.is_table();
    if (is_valid) {
      for (const auto& [key, value] : *entry.as_table()) {
        if (apply_to_rule(key.str(), value, &rule)) continue;
        log(Level::warn, "%s:%u: a rule has an unknown key or value: %s. The rule is ignored", path.c_str(),
            value.source().begin.line, std::string(key.str()).c_str());
        is_valid = false;
      }
    }
    if (is_valid) settings->rules.push_back(rule);
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
      apply_rules(value, path, settings);
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
