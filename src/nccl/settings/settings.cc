#include "nccl/settings/settings.h"

#include <fnmatch.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "files/read_file.h"
#include "nccl/report/log.h"
#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

// The part of "OPERATION=CODEC" before the equals sign. nullopt for a codec alone: "=" after its colon belong to its
// parameters.
std::optional<std::string_view> operation_part(std::string_view entry) {
  const size_t equals = entry.find('=');
  if (equals == entry.npos || entry.find(':') < equals) return std::nullopt;
  return trimmed(entry.substr(0, equals));
}

// The entries of "[OPERATION=]CODEC,...". A comma also separates a codec's parameters: "key=value" after a codec with a
// colon belongs to that codec unless the key is an operation.
std::vector<std::string> split_codecs(std::string_view value) {
  std::vector<std::string> entries;
  for (const std::string_view part : split(value, ',')) {
    const auto key = operation_part(part);
    if (key && !operation_named(*key) && !entries.empty() && entries.back().find(':') != std::string::npos)
      entries.back() += "," + std::string(part);
    else
      entries.emplace_back(part);
  }
  return entries;
}

void apply_codec(std::string_view value, const std::string& source, Settings* settings) {
  for (const std::string& entry : split_codecs(value)) {
    const auto key = operation_part(entry);
    const auto operation = key ? operation_named(*key) : std::nullopt;
    if (key && !operation) {
      log(Level::warn, "%s: '%s' is not an operation", source.c_str(), std::string(*key).c_str());
      continue;
    }
    const auto parsed = parse_codec(key ? trimmed(std::string_view(entry).substr(entry.find('=') + 1)) : entry);
    if (!parsed.codec) {
      log(Level::warn, "%s: %s", source.c_str(), parsed.error.c_str());
      continue;
    }
    for (int i = 0; i < operation_count; ++i) {
      const bool is_meant = operation ? *operation == i : i != NCAST_OP_BROADCAST || is_exact(*parsed.codec);
      if (is_meant) settings->codec[i] = parsed.codec;
    }
  }
}

void apply_off(std::string_view value, const std::string& source, Settings* settings) {
  settings->off_everything = false;
  std::ranges::fill(settings->off, false);
  if (const auto flag = flag_of(value)) {
    settings->off_everything = *flag;
    return;
  }
  for (const std::string_view entry : split(value, ',')) {
    if (const auto operation = operation_named(entry))
      settings->off[*operation] = true;
    else
      log(Level::warn, "%s: off: unknown operation '%s'", source.c_str(), std::string(entry).c_str());
  }
}

std::string all_variables() {
  std::vector<std::string> names;
  for (const std::string_view key : keys) names.push_back(variable_of(key));
  for (const std::string_view key : environment_only) names.push_back(variable_of(key));
  std::ranges::sort(names);
  return joined(names);
}

void read_environment(Settings* settings) {
  if (getauxval(AT_SECURE) != 0) return;  // as secure_getenv()
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry(*variable);
    const size_t equals = entry.find('=');
    if (!entry.starts_with(prefix) || equals == entry.npos) continue;
    const std::string name(entry.substr(0, equals));
    const std::string key = lower(std::string_view(name).substr(prefix.size()));
    const std::string_view value = entry.substr(equals + 1);
    // Variables of the project's own tests.
    if (key.starts_with("test_")) continue;
    const bool is_known = name == variable_of(key);
    if (is_known && contains(environment_only, key)) continue;
    if (!is_known || !apply_setting(key, value, name, settings))
      log(Level::warn, "the environment variable %s is not known to Narrowcast (known: %s)", name.c_str(),
          all_variables().c_str());
  }
}

const Settings* read_settings() {
  auto* const settings = new Settings;  // never freed: calls may come until the process ends
  if (const char* const path = secure_getenv("NARROWCAST_CONFIG"); path != nullptr && *path != '\0') {
    std::string content;
    const std::string error = files::read_file(path, most_file_bytes, &content);
    if (error.empty())
      apply_file(content, path, settings);
    else
      log(Level::warn, "NARROWCAST_CONFIG: cannot read %s: %s", path, error.c_str());
  }
  read_environment(settings);
  read_plan_files(settings);
  if (settings->debug) choose_level(*settings->debug);
  return settings;
}

}  // namespace

bool apply_setting(std::string_view key, std::string_view value, const std::string& source, Settings* settings) {
  const auto warn_invalid = [&](const char* expected) {
    log(Level::warn, "%s: %s is %s, not %s", source.c_str(), std::string(key).c_str(), std::string(value).c_str(),
        expected);
  };
  const auto apply_flag = [&](bool* flag) {
    const auto given = flag_of(value);
    if (!given) warn_invalid("1 or 0");
    *flag = given.value_or(*flag);
  };
  if (!contains(keys, key)) return false;
  if (value.empty()) return true;  // the same as an unset one
  if (key == "off") {
    apply_off(value, source, settings);
  } else if (key == "codec") {
    apply_codec(value, source, settings);
  } else if (key == "take") {
    const auto when = take_named(value);
    if (!when) warn_invalid("auto, always or never");
    if (when) settings->take = when;
  } else if (key == "attach") {
    const auto when = attach_named(value);
    if (!when) warn_invalid("first or init");
    settings->attach = when.value_or(settings->attach);
  } else if (key == "verify") {
    apply_flag(&settings->verify);
  } else if (key == "calibrate") {
    const auto given = flag_of(value);
    if (!given) warn_invalid("1 or 0");
    if (given) settings->calibrate = given;
  } else if (key == "nvtx") {
    apply_flag(&settings->nvtx);
  } else if (key == "stats") {
    settings->stats = value;
  } else if (key == "record") {
    settings->record = value;
  } else if (key == "stats_seconds") {
    const double seconds = number_of<double>(value).value_or(-1);
    if (!(seconds >= 0))
      warn_invalid("a number of seconds");
    else
      settings->stats_seconds = seconds;
  } else if (key == "scratch_bytes") {
    const auto bytes = number_of<uint64_t>(value);
    if (!bytes) warn_invalid("a whole number of bytes, or 0 for the default");
    settings->scratch_bytes = bytes.value_or(settings->scratch_bytes);
  } else if (key == "max_ctas") {
    const auto ctas = environment::max_ctas_of(value);
    if (!ctas) warn_invalid(environment::max_ctas_values);
    settings->max_ctas = ctas.value_or(settings->max_ctas);
  } else if (key == "p2p") {
    const auto p2p = environment::p2p_of(value);
    if (!p2p) warn_invalid(environment::p2p_values);
    settings->p2p = p2p.value_or(settings->p2p);
  } else if (key == "cost_model") {
    settings->cost_model = value;
  } else if (key == "plans") {
    settings->plans = value;
  } else if (key == "debug") {
    const auto level = level_named(value);
    if (!level) warn_invalid("NONE, VERSION, WARN, INFO or TRACE");
    if (level) settings->debug = level;
  } else if (key == "nccl_library") {
    settings->nccl_library = value;
    settings->nccl_library_from = source;
  }
  return true;
}

bool Rule::is_lossy() const { return codec && !is_exact(lossy_codec(*codec, result_codec)); }

bool matches_name(const std::string& pattern, std::string_view name) {
  const auto matches = [&](std::string_view text) {
    return fnmatch(pattern.c_str(), std::string(text).c_str(), 0) == 0;
  };
  const size_t colon = name.rfind(':');
  return matches(name) || (colon != name.npos && matches(name.substr(0, colon)));
}

const Settings& settings() {
  static const Settings& the = *read_settings();
  return the;
}

void SettingsDigest::mix(Shared setting, uint64_t word) {
  uint64_t& hash = hashes_[static_cast<size_t>(setting)];  // FNV-1a
  for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (word >> 8 * byte & 0xff)) * 0x100000001b3;
}

void SettingsDigest::mix(Shared setting, std::string_view text) {
  for (const char letter : text) mix(setting, static_cast<unsigned char>(letter));
}

const char* SettingsDigest::difference(const SettingsDigest& other) const {
  const auto at = std::ranges::mismatch(hashes_, other.hashes_).in1;
  return at == hashes_.end() ? nullptr : shared_setting_names[static_cast<size_t>(at - hashes_.begin())];
}

SettingsDigest digest(const Settings& settings) {
  SettingsDigest digest;
  const auto mix_optional = [&](Shared setting, const auto& value) {
    digest.mix(setting, value ? static_cast<uint64_t>(*value) : UINT64_MAX);
  };
  for (int i = 0; i < operation_count; ++i) {
    digest.mix(Shared::off, uint64_t{settings.off[i]});
    mix_optional(Shared::codec, settings.codec[i]);
    mix_optional(Shared::codec, settings.fallback_codec[i]);
  }
  mix_optional(Shared::take, settings.take);
  mix_optional(Shared::take, settings.fallback_take);
  digest.mix(Shared::attach, uint64_t{settings.attach == Attach::init});
  digest.mix(Shared::verify, uint64_t{settings.verify});
  digest.mix(Shared::scratch_bytes, settings.scratch_bytes);
  digest.mix(Shared::p2p, uint64_t{settings.p2p});
  digest.mix(Shared::cost_model, settings.cost_model);
  const auto mix_conditions = [&](Shared setting, const Conditions& conditions) {
    digest.mix(setting, conditions.min_bytes);
    digest.mix(setting, conditions.max_bytes);
    mix_optional(setting, conditions.ranks);
    digest.mix(setting, conditions.communicator);
  };
  for (const Rule& rule : settings.rules) {
    mix_conditions(Shared::rules, rule);
    digest.mix(Shared::rules, rule.operations.to_ullong());
    digest.mix(Shared::rules, rule.dtypes.to_ullong());
    digest.mix(Shared::rules, rule.redops.to_ullong());
    mix_optional(Shared::rules, rule.codec);
    mix_optional(Shared::rules, rule.result_codec);
    mix_optional(Shared::rules, rule.take);
  }
  for (const PlanFile& file : settings.plan_files) {
    digest.mix(Shared::plans, file.content);
    for (const PlanRule& rule : file.rules) {
      mix_conditions(Shared::plans, rule);
      for (const ncast_dtype dtype : rule.dtypes) digest.mix(Shared::plans, uint64_t{dtype});
      for (const ncast_redop redop : rule.redops) digest.mix(Shared::plans, uint64_t{redop});
      digest.mix(Shared::plans, uint64_t{rule.always});
    }
  }
  return digest;
}

}  // namespace narrowcast::nccl
