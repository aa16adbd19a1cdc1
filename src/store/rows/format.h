// Constants of row payloads. The specification is docs/format/rows.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::store {

inline constexpr uint64_t max_row_bytes = 65536;
inline constexpr uint32_t max_clusters = 65536;

// The header word, the first four bytes of a payload.
inline constexpr uint32_t place_mask = 3;      // where the payload is
inline constexpr uint32_t place_here = 0;      // it follows the header word
inline constexpr uint32_t place_redirect = 1;  // bits 2-31 are the number of an overflow entry
inline constexpr int redirect_shift = 2;
inline constexpr uint32_t raw_bit = 4;  // the body is the row; bits 3-31 are 0
inline constexpr int first_coder_bit = 3;
inline constexpr size_t header_bytes = 4;

constexpr bool is_redirect(uint32_t word) { return (word & place_mask) == place_redirect; }
constexpr uint32_t redirect_to(uint64_t entry) {
  return static_cast<uint32_t>(entry << redirect_shift) | place_redirect;
}
constexpr uint64_t entry_of(uint32_t word) { return word >> redirect_shift; }

constexpr uint64_t aligned4(uint64_t bytes) { return (bytes + 3) & ~uint64_t{3}; }

}  // namespace narrowcast::store
