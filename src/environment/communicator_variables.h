// The values of the environment variables of communicators. The library reads these variables; the drop-in reads them
// too, and settings of the same names in its file. docs/guide/settings.md describes them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace narrowcast::environment {

// A number without spaces or other characters around it.
template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

// NARROWCAST_MAX_CTAS.
inline constexpr uint32_t most_ctas = 64;
inline constexpr uint32_t unset_ctas = 255;  // no limit is set
inline constexpr const char* max_ctas_values = "auto or a number from 1 to 64";
inline std::optional<uint32_t> max_ctas_of(std::string_view text) {
  if (text == "auto") return unset_ctas;
  const std::optional<uint32_t> ctas = number_of<uint32_t>(text);
  return ctas && *ctas >= 1 && *ctas <= most_ctas ? ctas : std::nullopt;
}

// NARROWCAST_P2P: whether GPUs may access each other's memory. By default they may.
inline constexpr const char* p2p_values = "0 or 1";
inline std::optional<bool> p2p_of(std::string_view text) {
  if (text == "0") return false;
  if (text == "1") return true;
  return std::nullopt;
}

// NARROWCAST_LEVELS: whether ranks that form two levels (level_shape.h) have them. automatic: those of GPUs do, see
// choose_levels() in comm/levels/create.h.
enum class Levels : uint8_t { automatic, one, two };
inline constexpr const char* levels_names[] = {"auto", "1", "2"};
inline constexpr const char* levels_values = "auto, 1 or 2";
inline std::optional<Levels> levels_of(std::string_view text) {
  for (const Levels one : {Levels::automatic, Levels::one, Levels::two})
    if (text == levels_names[static_cast<size_t>(one)]) return one;
  return std::nullopt;
}

}  // namespace narrowcast::environment
