// Masks of low bits.
#pragma once

#include <cstdint>

namespace narrowcast::store {

// count: 0 to 64.
constexpr uint64_t low_ones(int count) { return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

}  // namespace narrowcast::store
