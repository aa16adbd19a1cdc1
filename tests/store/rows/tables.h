// Tables for the tests of row codecs: rows of every value type with the structure that some coder looks for.
#pragma once

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "codec/buffers.h"
#include "store/rows/fit.h"

namespace narrowcast::tests {

inline constexpr std::array<ncast_dtype, 12> all_dtypes = {
    NCAST_INT8,    NCAST_UINT8,   NCAST_INT32,   NCAST_UINT32,   NCAST_INT64,       NCAST_UINT64,
    NCAST_FLOAT16, NCAST_FLOAT32, NCAST_FLOAT64, NCAST_BFLOAT16, NCAST_FLOAT8_E4M3, NCAST_FLOAT8_E5M2};

inline constexpr std::array<const char*, 8> table_kinds = {
    "dense", "sparse", "one value", "small integers", "low bits 0", "clustered", "special values", "random"};

inline int mantissa_bits(ncast_dtype dtype) {
  switch (dtype) {
    case NCAST_FLOAT16: return 10;
    case NCAST_FLOAT32: return 23;
    case NCAST_FLOAT64: return 52;
    case NCAST_BFLOAT16: return 7;
    case NCAST_FLOAT8_E4M3: return 3;
    case NCAST_FLOAT8_E5M2: return 2;
    default: return 0;
  }
}

// A table in memory.
struct Table {
  store::RowShape shape{};
  uint64_t count = 0;
  Bytes bytes;

  const uint8_t* row(uint64_t index) const { return bytes.data() + index * shape.row_bytes(); }
  store::Sample sample() const { return {shape.row_bytes(), count, {bytes.begin(), bytes.end()}}; }
};

inline Table make_table(ncast_dtype dtype, uint64_t elems, uint64_t rows, size_t kind, uint64_t seed) {
  Table table;
  table.shape = {dtype, elems};
  table.count = rows;
  const size_t elem_bytes = ncast_dtype_bytes(dtype);
  const int bits = static_cast<int>(8 * elem_bytes), mantissa = mantissa_bits(dtype);
  table.bytes.resize(rows * elems * elem_bytes);
  Random random(seed);
  const auto dense = [&]() -> uint64_t {
    if (mantissa == 0) return static_cast<uint64_t>(random.below(100)) - 30;  // negative ones, too
    const int exponents = 1 << (bits - 1 - mantissa);
    const int below = std::countr_zero(random.bits() | 1u << 12);
    const auto exponent = static_cast<uint64_t>(std::max(exponents / 2 - below, 0));
    return (random.bits() & 1) << (bits - 1) | exponent << mantissa | (random.bits() & ((uint64_t{1} << mantissa) - 1));
  };
  const uint64_t constant = dense() | 1;
  std::array<uint64_t, 4> centres{};
  for (uint64_t& centre : centres) centre = random.bits();
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t centre = centres[static_cast<size_t>(random.below(4))];
    for (uint64_t i = 0; i < elems; ++i) {
      uint64_t value = 0;
      switch (kind) {
        case 0: value = dense(); break;
        case 1: value = random.chance(0.1) ? dense() : 0; break;
        case 2: value = random.chance(0.05) ? constant : 0; break;
        case 3: value = static_cast<uint64_t>(random.below(12)); break;
        case 4: value = dense() >> bits / 4 << bits / 4; break;
        case 5: value = centre ^ (random.bits() & random.bits() & random.bits() & random.bits()); break;
        case 6: {
          // NaN payloads, infinities, -0, denormals.
          const uint64_t exponent = random.chance(0.5) ? 0 : ~uint64_t{0};
          value = exponent << mantissa | (random.chance(0.3) ? random.bits() : 0) >> (64 - mantissa) % 64 |
                  (random.bits() & 1) << (bits - 1);
          break;
        }
        default: value = random.bits(); break;
      }
      std::memcpy(table.bytes.data() + (row * elems + i) * elem_bytes, &value, elem_bytes);
    }
  }
  return table;
}

// Codecs that can encode rows of the shape. Stages in front of `invariant` take turns, by the length of the row.
inline std::vector<std::string> codecs_of(const store::RowShape& shape) {
  std::vector<std::string> codecs = {
      "raw", "plain", "zeros", "trim", "zeros+trim", "invariant:chunk=1,clusters=1", "invariant:chunk=1,clusters=3"};
  constexpr std::array stages = {"zeros+", "trim+", "zeros+trim+"};
  const std::string stage = stages[shape.elems % 3];
  codecs.push_back(stage + "invariant:chunk=1,clusters=2");
  for (const uint64_t chunk : {2u, 4u, 8u}) {
    if (shape.row_bytes() % chunk != 0) continue;
    const std::string coder = "invariant:chunk=" + std::to_string(chunk) + ",clusters=4";
    codecs.push_back(coder);
    if (chunk == uint64_t{2} << shape.elems % 9 / 3) codecs.push_back(stage + coder);
  }
  if (mantissa_bits(shape.dtype) != 0)
    for (const char* codec : {"window", "trim+window", "zeros+window", "zeros+trim+window"}) codecs.emplace_back(codec);
  return codecs;
}

// Fitted to all rows, as if there were more of them unless the options say how many there are.
inline store::RowFit fit(const Table& table, const std::string& codec, const store::FitOptions& options = {}) {
  std::string problem;
  auto fitted = store::fit_rows(table.shape, table.sample(), codec, options, &problem);
  if (!fitted) throw std::runtime_error(codec + ": " + problem);
  return *std::move(fitted);
}

}  // namespace narrowcast::tests
