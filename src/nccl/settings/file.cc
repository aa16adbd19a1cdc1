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

std::optional<ncast_dtype> dtype_named(std::string_view name) {
  const auto* const found = std::ranges::find(dtype_names, name);
  if (found == std::end(dtype_names)) return std::nullopt;
  return static_cast<ncast_dtype>(found - std::begin(dtype_names));
}

std::optional<ncast_redop> redop_named(std::string_view name) {
  const auto* const found = std::ranges::find(redop_names, name);
  if (found == std::end(redop_names)) return std::nullopt;
  return static_cast<ncast_redop>(found - std::begin(redop_names));
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
constexpr TableKey dtype_key = {"dtype", "a value type, such as bfloat16, or a list of them"};
constexpr TableKey op_key = {"op", "a reduction, such as sum, or a list of them"};
constexpr TableKey rule_keys[] = {{"codec", "auto or a codec"},
                                  dtype_key,
                                  {"name", "a text"},
                                  op_key,
                                  {"operation", "an operation, such as all_reduce, or a list of them"},
                                  {"result_codec", "a codec"},
                                  {"take", "auto, always or never"}};
constexpr TableKey plan_keys[] = {dtype_key, {"file", "the name of a file"}, op_key, {"use", "always or faster"}};
constexpr TableKey condition_keys[] = {{"communicator", "a name, or a pattern such as mesh_*"},
                                       {"max_bytes", "a number of bytes"},
                                       {"min_bytes", "a number of bytes"},
                                       {"ranks", "a number"}};

// Why a key of a table, or its value, is invalid. own: the keys besides those of conditions.
std::string fault_of(std::string_view key, const toml::node& value, std::span<const TableKey> own) {
  if ((key == "codec" || key == "result_codec") && value.is_string())
    return parse_codec(value.value_or(std::string())).error;
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

// The same, as a set.
template <typename Value, size_t size>
bool read_names(const toml::node& node, std::optional<Value> (*named)(std::string_view), std::bitset<size>* set) {
  std::vector<Value> values;
  if (!read_names(node, named, &values)) return false;
  for (const Value value : values) set->set(value);
  return true;
}

// A receive follows its send.
std::optional<Operation> sending_operation_named(std::string_view name) {
  const auto operation = operation_named(name);
  return operation == NCAST_OP_RECV ? NCAST_OP_SEND : operation;
}

bool apply_to_rule(std::string_view key, const toml::node& node, Rule* rule) {
  const std::string text = node.value_or(std::string());
  if (key == "name") return !(rule->name = text).empty();
  if (key == "operation") return read_names(node, sending_operation_named, &rule->operations);
  if (key == "dtype") return read_names(node, dtype_named, &rule->dtypes);
  if (key == "op") return read_names(node, redop_named, &rule->redops);
  if (key == "codec") return (rule->codec = parse_codec(text).codec).has_value();
  if (key == "result_codec") return (rule->result_codec = parse_codec(text).codec).has_value();
  if (key == "take") return (rule->take = take_named(text)).has_value();
  return apply_to_conditions(key, node, rule);
}

template <size_t size>
std::string names_of(const std::bitset<size>& set, const char* const* names) {
  std::vector<std::string> list;
  for (size_t i = 0; i < size; ++i)
    if (set[i]) list.emplace_back(names[i]);
  return joined(list);
}

// Fills in what a rule does not state, and returns why its conditions contradict each other, or "".
std::string complete(const toml::table& table, size_t number, Rule* rule) {
  if (rule->name.empty()) rule->name = "rule " + std::to_string(number);
  rule->line = table.source().begin.line;
  const ncast_codec codec = rule->codec.value_or(NCAST_CODEC_AUTO);
  const ncast_codec lossy = lossy_codec(codec, rule->result_codec);
  const bool is_lossy = !is_exact(lossy);
  const Operations reducing = reducing_operations();
  if (rule->operations.none()) {
    rule->operations = rule->redops.any() ? reducing : ~Operations();
    if (is_lossy) rule->operations.reset(NCAST_OP_BROADCAST);
  } else if (rule->redops.any() && (rule->operations & reducing).none()) {
    return "op is only for operations that reduce, not for " + names_of(rule->operations, operation_names);
  }
  if (rule->result_codec) {
    if (!rule->operations[NCAST_OP_ALL_REDUCE])
      return "result_codec is only for all_reduce, not for " + names_of(rule->operations, operation_names);
    if (const std::string why = why_not_combined(codec, *rule->result_codec); !why.empty()) return why;
  }
  const Redops reduced = is_lossy ? lossy_redops : ~Redops();
  if (const Redops unable = rule->redops & ~reduced; unable.any())
    return codec_text(lossy) + " is not exact, so its values cannot be reduced with " + names_of(unable, redop_names);
  if (rule->redops.none()) rule->redops = reduced;
  const Dtypes encoded = is_lossy ? encoded_dtypes(lossy) : ~Dtypes();
  if (const Dtypes unable = rule->dtypes & ~encoded; unable.any())
    return codec_text(lossy) + " does not encode " + names_of(unable, dtype_names);
  if (rule->dtypes.none()) rule->dtypes = encoded;
  if (is_lossy && !table.contains("min_bytes")) rule->min_bytes = least_lossy_bytes;
  if (rule->min_bytes <= rule->max_bytes) return "";
  const bool is_stated = table.contains("min_bytes");
  return "max_bytes is " + std::to_string(rule->max_bytes) + ", but min_bytes is " + std::to_string(rule->min_bytes) +
         (is_stated ? "" : " if a rule with a codec that is not exact does not state it");
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
                  bool (*apply)(std::string_view, const toml::node&, Entry*),
                  std::string (*complete)(const toml::table&, size_t number, Entry*), std::vector<Entry>* entries) {
  const auto* const list = node.as_array();
  if (list == nullptr || !std::ranges::all_of(*list, [](const toml::node& entry) { return entry.is_table(); })) {
    log(Level::warn, "%s: %s is not a list of tables: write [[%s]]", path.c_str(), name, name);
    return;
  }
  size_t number = 0;
  for (const toml::node& entry : *list) {
    const toml::table& table = *entry.as_table();
    ++number;
    Entry made;
    bool is_valid = true;
    const auto warn = [&](const toml::node& at, const std::string& fault) {
      is_valid = false;
      log(Level::warn, "%s:%u: in a %s, %s. The %s is ignored", path.c_str(), at.source().begin.line, name,
          fault.c_str(), name);
    };
    for (const auto& [key, value] : table)
      if (!apply(key.str(), value, &made)) warn(value, fault_of(key.str(), value, keys));
    if (const std::string fault = is_valid ? complete(table, number, &made) : ""; !fault.empty()) warn(entry, fault);
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

void parse_file(std::string_view content, const std::string& path, Settings* settings) {
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
      apply_tables<Rule>(value, "rule", path, rule_keys, apply_to_rule, complete, &settings->rules);
      continue;
    }
    if (key.str() == "plan") {
      const auto complete_already = [](const toml::table&, size_t, PlanRule*) { return std::string(); };
      apply_tables<PlanRule>(value, "plan", path, plan_keys, apply_to_plan, complete_already, &settings->plan_rules);
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

void apply_file(std::string_view content, const std::string& path, Settings* settings) {
  const CollectedWarnings warnings(false);
  parse_file(content, path, settings);
  if (warnings.messages().empty()) return;
  const auto is_lossy = [](const std::optional<ncast_codec>& codec) { return codec && !is_exact(*codec); };
  bool any = std::erase_if(settings->rules, [&](const Rule& rule) { return rule.is_lossy(); }) != 0;
  for (std::optional<ncast_codec>& codec : settings->fallback_codec) {
    any = any || is_lossy(codec);
    if (is_lossy(codec)) codec.reset();
  }
  if (any)
    log(Level::warn, "%s: no codec of the file that is not exact is used until these errors are corrected",
        path.c_str());
}

}  // namespace narrowcast::nccl
