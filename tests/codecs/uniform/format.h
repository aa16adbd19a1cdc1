// The parameters and the random numbers of the codec `uniform`, for host and device code.
#pragma once

#include "codec/parameter.h"
#include "device/block_context.h"

namespace narrowcast::codec::uniform {

inline constexpr ParameterField bits_field = {16, 16};
inline constexpr ParameterField dither_field = {32, 32};
inline constexpr float no_dither = 1e-3f;  // the default: the values are not changed at random

// The finalizer of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
constexpr uint64_t mixed(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebull;
  return bits ^ bits >> 31;
}

// A number from -0.5 to 0.5 for a value of a block: a multiple of 2^-24, so that its product with a float is exact in a
// double, with and without fused multiply-add.
constexpr double random_number(const device::BlockContext& context, uint32_t index) {
  const uint64_t of_call = mixed(uint64_t{context.call} << 32 | context.stage << 16 | context.rank);
  const uint64_t bits = mixed((context.first_elem + index) * 0x9e3779b97f4a7c15ull + of_call);
  return static_cast<double>(static_cast<int64_t>(bits >> 40) - (1 << 23)) / (1 << 24);
}

}  // namespace narrowcast::codec::uniform
