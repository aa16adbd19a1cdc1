#include "nccl/settings.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "nccl/log.h"
#include "nccl/settings_text.h"

namespace narrowcast::nccl {
namespace {

constexpr std::string_view prefix = "NARROWCAST_";

// Variables of the prefix that others read: the library, the Python package, the log and the search for NCCL.
constexpr std::string_view read_elsewhere[] = {"CONFIG",       "DEBUG", "LIBRARY",       "MAX_CTAS",
                                               "NCCL_LIBRARY", "P2P",   "SOCKET_IFNAME", "TRACEBACK"};

void apply_codec(std::string_view value, const std::string& source, Settings* settings) {
  for (const std::string_view entry : split(value, ',')) {
    const size_t equals = entry.find('=');
    const auto codec = codec_named(trimmed(equals == entry.npos ? entry : entry.substr(equals + 1)));
    const auto operation = equals == entry.npos ? std::nullopt : operation_named(trimmed(entry.substr(0, equals)));
    if (!codec || (equals != entry.npos && !operation)) {
      log(Level::warn, "%s: codec has %s, which is neither auto, raw or window nor OPERATION=CODEC", source.c_str(),
          std::string(entry).c_str());
      continue;
    }
    for (int i = 0; i < operation_count; ++i)
      if (!operation || *operation == i) settings->codec[i] = codec;
  }
}

void apply_off(std::string_view value, const std::string& source, Settings* settings) {
  if (const auto flag = flag_of(value)) {
    settings->off_everything = *flag;
    return;
  }
  for (const std::string_view entry : split(value, ',')) {
    if (const auto operation = operation_named(entry))
      settings->off[*operation] = true;
    else
      log(Level::warn, "%s: off has %s, which is no operation", source.c_str(), std::string(entry).c_str());
  }
}

void read_environment(Settings* settings) {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry(*variable);
    const size_t equals = entry.find('=');
    if (!entry.starts_with(prefix) || equals == entry.npos) continue;
    const std::string_view name = entry.substr(prefix.size(), equals - prefix.size());
    // NARROWCAST_TEST_...: of the project's own tests.
    if (name.starts_with("TEST_") || contains(read_elsewhere, name)) continue;
    const std::string full_name(entry.substr(0, equals));
    if (!apply_setting(lower(name), entry.substr(equals + 1), full_name, settings))
      log(Level::warn, "the environment variable %s is not known to Narrowcast", full_name.c_str());
  }
}

const Settings* read_settings() {
  auto* const settings = new Settings;  // never freed: calls may come until the process ends
  if (const char* const path = std::getenv("NARROWCAST_CONFIG"); path != nullptr && *path != '\0') {
    std::ifstream file(path);
    std::ostringstream content;
    if (file && content << file.rdbuf())
      apply_file(content.str(), path, settings);
    else
      log(Level::warn, "NARROWCAST_CONFIG is %s, which cannot be read", path);
  }
  read_environment(settings);
  return settings;
}

}  // namespace

bool apply_setting(std::string_view key, std::string_view value, const std::string& source, Settings* settings) {
  const auto misunderstood = [&](const char* expected) {
    log(Level::warn, "%s: %s is %s, not %s", source.c_str(), std::string(key).c_str(), std::string(value).c_str(),
        expected);
  };
  const auto apply_flag = [&](bool* flag) {
    const auto given = flag_of(value);
    if (!given) misunderstood("1 or 0");
    *flag = given.value_or(*flag);
  };
  if (key == "off") {
    apply_off(value, source, settings);
  } else if (key == "codec") {
    apply_codec(value, source, settings);
  } else if (key == "take") {
    settings->take = take_named(value);
    if (!settings->take) misunderstood("auto, always or never");
  } else if (key == "attach") {
    const auto when = attach_named(value);
    if (!when) misunderstood("first or init");
    settings->attach = when.value_or(settings->attach);
  } else if (key == "verify") {
    apply_flag(&settings->verify);
  } else if (key == "nvtx") {
    apply_flag(&settings->nvtx);
  } else if (key == "stats") {
    settings->stats = value;
  } else if (key == "stats_seconds") {
    double seconds = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || seconds < 0)
      misunderstood("a number of seconds");
    else
      settings->stats_seconds = seconds;
  } else {
    return false;
  }
  return true;
}

const Settings& settings() {
  static const Settings& the = *read_settings();
  return the;
}

uint64_t digest(const Settings& settings) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto mix = [&hash](uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (word >> 8 * byte & 0xff)) * 0x100000001b3;
  };
  const auto mix_optional = [&mix](const auto& value) { mix(value ? static_cast<uint64_t>(*value) : UINT64_MAX); };
  for (int i = 0; i < operation_count; ++i) {
    mix(settings.off[i]);
    mix_optional(settings.codec[i]);
  }
  mix_optional(settings.take);
  mix(settings.attach == Attach::init);
  mix(settings.verify);
  for (const Rule& rule : settings.rules) {
    mix_optional(rule.operation);
    mix_optional(rule.dtype);
    mix(rule.min_bytes);
    mix(rule.max_bytes);
    mix_optional(rule.ranks);
    for (const char letter : rule.communicator) mix(static_cast<unsigned char>(letter));
    mix_optional(rule.codec);
    mix_optional(rule.take);
  }
  return hash;
}

}  // namespace narrowcast::nccl
