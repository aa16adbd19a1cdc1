// Codecs as text: "window", "window!", "auto", "name:key=value,key=value", "within:relative=0.01". Header-only and
// independent of the table, because the drop-in parses its settings before it loads the library.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "codec/row.h"

namespace narrowcast::codec {

// Either `codec` or `error` is set.
struct ParsedCodec {
  std::optional<ncast_codec> codec;  // canonical
  std::string error;                 // "'windw' is not a codec (known: auto, within, raw, window)"
};

// Names for codecs with parameters, after the recipes of other systems. docs/guide/lossy.md says how ours differ.
struct Preset {
  const char *name, *codec;
};
inline constexpr Preset presets[] = {
    {"minmax8", "int8a"},
    {"sdp4bit", "int4:group=128,rotate=32,rounding=stochastic"},
    {"taco", "e4m3"},
    {"tahquant", "int8:group=128,rotate=32"},
    {"quickreduce-int4", "int4"},
};

namespace text {

inline std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

inline std::string known_codecs(std::span<const Row> rows) {
  std::string list = "auto, within";
  for (const Row& row : rows) list += std::string(", ") + row.name;
  for (const Preset& preset : presets) list += std::string(", ") + preset.name;
  return list;
}

inline std::string known_parameters(const Row& row) {
  std::string list;
  for (const ncast_codec_parameter& parameter : row.parameters())
    list += (list.empty() ? "" : ", ") + std::string(parameter.name);
  return list;
}

// The shortest text of a parameter's value: "8", "0.001", "1e-06".
inline std::string number(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, static_cast<float>(value)).ptr};
}
// The text of choice number `number`, from 1.
inline std::string_view choice(std::string_view choices, uint32_t number) {
  for (; number > 1; --number) choices.remove_prefix(choices.find('|') + 1);
  return choices.substr(0, choices.find('|'));
}
inline std::string value(const ncast_codec_parameter& parameter, uint32_t stored) {
  if (parameter.kind == NCAST_PARAMETER_CHOICE && is_valid(parameter, stored))
    return std::string(choice(parameter.choices, stored));
  return number(value_of(parameter.kind, stored));
}
inline std::string range(const ncast_codec_parameter& parameter) {
  if (parameter.kind == NCAST_PARAMETER_CHOICE) {
    std::string list = "one of ";
    for (const char* c = parameter.choices; *c != '\0'; ++c) list += *c == '|' ? ", " : std::string(1, *c);
    return list;
  }
  const bool is_power = parameter.kind == NCAST_PARAMETER_POWER_OF_TWO;
  return (is_power ? "a power of two from " : "a number from ") + number(parameter.least) + " to " +
         number(parameter.most);
}

// Converts the text of a parameter's value to the content of its field; 0 if it is not valid.
inline uint32_t stored_value(const ncast_codec_parameter& parameter, std::string_view text) {
  if (parameter.kind == NCAST_PARAMETER_CHOICE) {
    for (uint32_t number = 1; number <= static_cast<uint32_t>(parameter.most); ++number)
      if (choice(parameter.choices, number) == text) return number;
    return 0;
  }
  const bool is_real = parameter.kind == NCAST_PARAMETER_REAL;
  float real = 0;
  uint16_t integer = 0;
  const auto [end, failed] = is_real ? std::from_chars(text.data(), text.data() + text.size(), real)
                                     : std::from_chars(text.data(), text.data() + text.size(), integer);
  if (failed != std::errc() || end != text.data() + text.size()) return 0;
  const double value = is_real ? double{real} : integer;
  const uint32_t result = stored(parameter.kind, value);
  return result != 0 && value_of(parameter.kind, result) == value && is_valid(parameter, result) ? result : 0;
}

// Sets one "key=value" of `row` in *codec. Returns a message if it is invalid, otherwise "".
inline std::string set_parameter(const Row& row, std::string_view setting, ncast_codec* codec) {
  const size_t equals = setting.find('=');
  if (equals == setting.npos) return quoted(setting) + " is not key=value";
  const std::string_view key = setting.substr(0, equals), value = setting.substr(equals + 1);
  const auto parameters = row.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ncast_codec_parameter& parameter = parameters[i];
    if (key != parameter.name) continue;
    if (get(*codec, row.field(i)) != 0) return std::string(parameter.name) + " is given twice";
    const uint32_t stored = stored_value(parameter, value);
    if (stored == 0) return std::string(parameter.name) + " is " + quoted(value) + ", not " + range(parameter);
    *codec = set(*codec, row.field(i), stored);
    return "";
  }
  if (parameters.empty()) return "the codec has no parameter " + quoted(key);
  return "the codec has no parameter " + quoted(key) + " (known: " + known_parameters(row) + ")";
}

inline ncast_codec without_defaults(const Row& row, ncast_codec codec) {
  const auto parameters = row.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (get(codec, row.field(i)) == stored(parameters[i].kind, parameters[i].default_value))
      codec = set(codec, row.field(i), 0);
  return codec;
}

// The codec of a preset, with the parameters that follow its name: "int4:group=128,seed=7".
inline std::string expanded(const Preset& preset, std::string_view settings) {
  std::string codec = preset.codec;
  if (settings.empty()) return codec;
  const char separator = codec.find(':') == std::string::npos ? ':' : ',';
  return codec + separator + std::string(settings.substr(1));
}

// settings: what follows "within".
inline ParsedCodec parse_within(std::string_view all, std::string_view settings, bool forced) {
  constexpr std::string_view prefix = ":relative=";
  const auto wrong = [&](const std::string& why) -> ParsedCodec {
    return {std::nullopt, "codec " + quoted(all) + ": " + why};
  };
  if (!settings.starts_with(prefix)) return wrong("expected within:relative=R, such as within:relative=0.01");
  const std::string_view value = settings.substr(prefix.size());
  float relative = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), relative);
  if (failed != std::errc() || end != value.data() + value.size() || !is_valid_relative(relative))
    return wrong("relative is " + quoted(value) + ", not a number above 0 and below 1");
  const ncast_codec codec = set(NCAST_CODEC_WITHIN, relative_field, std::bit_cast<uint32_t>(relative));
  return {forced ? codec | NCAST_CODEC_FORCED : codec, ""};
}

}  // namespace text

inline ParsedCodec parse(std::span<const Row> rows, std::string_view all) {
  if (all == "auto") return {NCAST_CODEC_AUTO, ""};
  if (all == "auto!") return {std::nullopt, "codec 'auto!': auto cannot be forced"};
  const bool forced = all.ends_with('!');
  const std::string_view unforced = all.substr(0, all.size() - (forced ? 1 : 0));
  const std::string_view name = unforced.substr(0, unforced.find(':'));
  if (name == "within") return text::parse_within(all, unforced.substr(name.size()), forced);
  for (const Preset& preset : presets) {
    if (name != preset.name) continue;
    const std::string codec = text::expanded(preset, unforced.substr(name.size())) + (forced ? "!" : "");
    ParsedCodec parsed = parse(rows, codec);
    if (!parsed.codec) parsed.error = "preset " + text::quoted(name) + ": " + parsed.error;
    return parsed;
  }
  for (const Row& row : rows) {
    if (name != row.name) continue;
    ncast_codec codec = row.id;
    for (std::string_view rest = unforced.substr(name.size()); !rest.empty();) {
      rest.remove_prefix(1);  // the colon or a comma
      const std::string_view setting = rest.substr(0, rest.find(','));
      const std::string error = text::set_parameter(row, setting, &codec);
      if (!error.empty()) return {std::nullopt, "codec " + text::quoted(all) + ": " + error};
      rest.remove_prefix(setting.size());
    }
    codec = text::without_defaults(row, codec);
    return {forced && codec != NCAST_CODEC_RAW ? codec | NCAST_CODEC_FORCED : codec, ""};
  }
  return {std::nullopt, text::quoted(name) + " is not a codec (known: " + text::known_codecs(rows) + ")"};
}

// The canonical text of a codec. A number that is not a codec yields "codec 77".
inline std::string format(std::span<const Row> rows, ncast_codec codec) {
  if (codec == NCAST_CODEC_AUTO) return "auto";
  if (is_within(codec)) return "within:relative=" + text::number(relative_of(codec)) + (is_forced(codec) ? "!" : "");
  for (const Row& row : rows) {
    if (row.id != id_of(codec)) continue;
    codec = text::without_defaults(row, codec);
    std::string result = row.name;
    const auto parameters = row.parameters();
    char separator = ':';
    for (size_t i = 0; i < parameters.size(); ++i) {
      const uint32_t stored = get(codec, row.field(i));
      if (stored == 0) continue;
      result += separator + std::string(parameters[i].name) + "=" + text::value(parameters[i], stored);
      separator = ',';
    }
    if (is_forced(codec) && id_of(codec) != NCAST_CODEC_RAW) result += '!';
    return result;
  }
  return "codec " + std::to_string(codec);
}

}  // namespace narrowcast::codec
