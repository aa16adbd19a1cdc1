// Parsing of settings.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/text.h"
#include "environment/communicator_variables.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

inline constexpr std::string_view prefix = "NARROWCAST_";
// The keys of a file, besides `rule`. Each is also a variable: in capitals, with the prefix.
inline constexpr std::string_view keys[] = {
    "attach", "calibrate", "codec",  "cost_model",    "debug", "max_ctas",      "nccl_library", "nvtx",  "off",
    "p2p",    "plans",     "record", "scratch_bytes", "stats", "stats_seconds", "take",         "verify"};
// Only in the environment: read by the library or the Python package, or needed to find the file.
inline constexpr std::string_view environment_only[] = {
    "config", "hostid",     "levels",     "library",       "net",       "nvrtc", "partial_sums",
    "path",   "plan_cache", "shared_kib", "socket_ifname", "traceback", "ucx",   "user_codecs"};

inline std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The non-empty parts, trimmed.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (const std::string_view part = trimmed(text.substr(0, end)); !part.empty()) parts.push_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

inline std::string joined(const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names) result += (result.empty() ? "" : ", ") + name;
  return result;
}

inline std::string lower(std::string_view text) {
  std::string result(text);
  for (char& letter : result)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return result;
}

inline std::string variable_of(std::string_view key) {
  std::string result(prefix);
  for (const char letter : key)
    result += letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  return result;
}

using environment::number_of;

template <typename List>
bool contains(const List& list, std::string_view text) {
  return std::ranges::find(list, text) != std::end(list);
}

inline std::optional<bool> flag_of(std::string_view text) {
  if (text == "1" || text == "true" || text == "all") return true;
  if (text == "0" || text == "false") return false;
  return std::nullopt;
}

// In codecs.cc. As ncast_codec_parse and ncast_codec_format, for settings that are read before the library is loaded.
codec::ParsedCodec parse_codec(std::string_view text);
std::string codec_text(ncast_codec codec);
// Except raw.
std::vector<ncast_codec> exact_codecs();
// AUTO allows only exact codecs.
bool is_exact(ncast_codec codec);
// Of two codecs, the one that decides whether values change: the second if the first is exact.
inline ncast_codec lossy_codec(ncast_codec codec, std::optional<ncast_codec> result_codec) {
  return result_codec && is_exact(codec) ? *result_codec : codec;
}
// Why an all-reduce cannot have results of another codec; "" if it can.
std::string why_not_combined(ncast_codec codec, ncast_codec result_codec);
// Of any lossy codec, if the codec is an error budget.
Dtypes encoded_dtypes(ncast_codec codec);

inline constexpr const char* take_names[] = {"auto", "always", "never"};
inline constexpr const char* dtype_names[] = {"int8",    "uint8",    "int32",       "uint32",
                                              "int64",   "uint64",   "float16",     "float32",
                                              "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
inline constexpr const char* redop_names[] = {"sum", "prod", "max", "min", "avg"};

inline Operations reducing_operations() {
  Operations reducing;
  for (size_t i = 0; i < reducing.size(); ++i) reducing[i] = reduces(static_cast<Operation>(i));
  return reducing;
}

inline std::optional<TakeMode> take_named(std::string_view name) {
  const auto* const found = std::ranges::find(take_names, name);
  if (found == std::end(take_names)) return std::nullopt;
  return static_cast<TakeMode>(found - std::begin(take_names));
}

inline std::optional<Attach> attach_named(std::string_view name) {
  if (name == "first") return Attach::first;
  if (name == "init") return Attach::init;
  return std::nullopt;
}

}  // namespace narrowcast::nccl
