// Models and rows for the tests of gather kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "codec/window/format.h"
#include "store/cuda/gather_table.h"
#include "store/rows/model.h"
#include "store/rows/row_codec.h"

namespace narrowcast::store::cuda::test {

// Draws a value.
using Fill = std::function<uint64_t(std::mt19937_64&)>;

inline std::vector<Bytes> rows_of(const RowShape& shape, size_t count, const Fill& fill, std::mt19937_64& random) {
  const size_t value_bytes = ncast_dtype_bytes(shape.dtype);
  std::vector<Bytes> rows(count, Bytes(shape.row_bytes()));
  for (Bytes& row : rows)
    for (size_t at = 0; at < row.size(); at += value_bytes) {
      const uint64_t value = fill(random);
      std::memcpy(&row[at], &value, value_bytes);
    }
  return rows;
}

inline std::vector<Bytes> encoded(const std::shared_ptr<const Model>& model, const std::vector<Bytes>& rows) {
  const RowModel coder(model);
  if (coder.uncoded()) return rows;
  std::vector<Bytes> payloads;
  for (const Bytes& row : rows) {
    payloads.emplace_back(coder.bound());
    payloads.back().resize(coder.encode(row.data(), payloads.back().data()));
  }
  return payloads;
}

// Values whose exponents lie close to each other, except for a few; the low bits are those of the trim.
inline Fill floats(ncast_dtype dtype, const Trim& trim) {
  const codec::window::ValueType type = codec::window::value_type(dtype);
  const int bits = 8 * type.value_bytes, mantissa = bits - 1 - type.exponent_bits;
  return [=](std::mt19937_64& random) {
    const uint64_t most = (uint64_t{1} << type.exponent_bits) - 1;
    uint64_t exponent = most / 2 - random() % 5;
    const uint64_t kind = random() % 40;
    if (kind == 0) exponent = random() % (most + 1);
    if (kind == 1) exponent = 0;
    if (kind == 2) exponent = most / 2 + 1 + random() % 4;
    const uint64_t value =
        (random() & 1) << (bits - 1) | exponent << mantissa | (random() & ((uint64_t{1} << mantissa) - 1));
    return (value >> trim.low_bits << trim.low_bits) | trim.low;
  };
}
// Values whose exponents all have codes or tokens: some of the latter are above the window. None is zero or far.
// Most exponents are `highest` or a little lower; 0: they are about those of numbers near 1.
inline Fill near_floats(ncast_dtype dtype, int64_t highest = 0) {
  const codec::window::ValueType type = codec::window::value_type(dtype);
  const int bits = 8 * type.value_bytes, mantissa = bits - 1 - type.exponent_bits;
  return [=](std::mt19937_64& random) {
    const int64_t middle = highest != 0 ? highest : (int64_t{1} << type.exponent_bits) / 2;
    const int below = std::countr_zero(random() | 1 << 8);
    const auto exponent = static_cast<uint64_t>(random() % 24 == 0 ? middle + 1 : std::max(middle - below, int64_t{1}));
    return (random() & 1) << (bits - 1) | exponent << mantissa | (random() & ((uint64_t{1} << mantissa) - 1));
  };
}
inline Fill sparse(const Fill& fill, uint64_t one_in) {
  return [=](std::mt19937_64& random) { return random() % one_in == 0 ? fill(random) : 0; };
}
// Integers whose bits follow a trim.
inline Fill trimmed(const Model& model) {
  const Trim trim = model.trim;
  const int coded_bits = model.coded_bits(), above = trim.low_bits + coded_bits;
  return [=](std::mt19937_64& random) {
    const uint64_t part = coded_bits == 0 ? 0 : random() >> (64 - coded_bits) << trim.low_bits;
    return part | trim.low | (above < 64 ? trim.high << above : 0);
  };
}

inline Model window_model(ncast_dtype dtype, uint64_t elems, const Trim& trim, bool has_zeros) {
  Model model;
  model.shape = {dtype, elems};
  model.coder = Coder::WINDOW;
  model.has_trim = trim.low_bits != 0;
  model.trim = trim;
  model.has_zeros = has_zeros;
  return model;
}
inline Model plain_model(ncast_dtype dtype, uint64_t elems, const Trim& trim, bool has_zeros) {
  Model model = window_model(dtype, elems, trim, has_zeros);
  model.coder = Coder::PLAIN;
  model.has_trim = true;
  return model;
}
inline Model raw_model(ncast_dtype dtype, uint64_t elems) {
  Model model;
  model.shape = {dtype, elems};
  return model;
}
inline Model invariant_model(uint64_t row_bytes, uint32_t chunk_bytes, uint32_t clusters, std::mt19937_64& random) {
  Model model;
  model.shape = {NCAST_INT8, row_bytes};
  model.coder = Coder::INVARIANT;
  model.chunk_bytes = chunk_bytes;
  model.clusters = clusters;
  for (uint64_t i = 0; i < clusters * row_bytes; ++i) {
    model.masks.push_back(static_cast<uint8_t>(random() | random()));
    model.values.push_back(static_cast<uint8_t>(random() & model.masks.back()));
  }
  return model;
}
// Rows that mostly follow a cluster of the model.
inline std::vector<Bytes> invariant_rows(const Model& model, size_t count, std::mt19937_64& random) {
  const uint64_t row_bytes = model.shape.row_bytes();
  std::vector<Bytes> rows(count, Bytes(row_bytes));
  for (Bytes& row : rows) {
    const uint64_t cluster = random() % model.clusters;
    for (uint64_t i = 0; i < row_bytes; ++i) {
      const uint64_t at = cluster * row_bytes + i;
      row[i] = static_cast<uint8_t>(random());
      if (random() % 20 != 0) row[i] = static_cast<uint8_t>((row[i] & ~model.masks[at]) | model.values[at]);
    }
  }
  return rows;
}
// The same model with stages in front of the coder.
inline Model staged_invariant_model(Model model, ncast_dtype dtype, const Trim& trim, bool has_zeros) {
  model.shape = {dtype, model.shape.row_bytes() / ncast_dtype_bytes(dtype)};
  model.has_zeros = has_zeros;
  model.has_trim = trim != Trim{};
  model.trim = trim;
  const TrimPattern pattern = model.trim_pattern();
  for (size_t i = 0; i < model.masks.size(); ++i) {
    const size_t shift = i % model.shape.row_bytes() % 8 * 8;
    const auto bits = static_cast<uint8_t>(pattern.bits >> shift);
    model.masks[i] |= bits;
    model.values[i] = static_cast<uint8_t>((model.values[i] & ~bits) | static_cast<uint8_t>(pattern.values >> shift));
  }
  return model;
}
// Its rows: most chunks are 0 if there is a zero map, and few of the others do not follow the trim.
inline std::vector<Bytes> staged_invariant_rows(const Model& model, size_t count, std::mt19937_64& random) {
  std::vector<Bytes> rows = invariant_rows(model, count, random);
  const TrimPattern pattern = model.trim_pattern();
  for (Bytes& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t shift = i % 8 * 8;
      row[i] =
          static_cast<uint8_t>((row[i] & ~(pattern.bits >> shift)) | static_cast<uint8_t>(pattern.values >> shift));
    }
    if (random() % 8 == 0) row[random() % row.size()] ^= 0xff;
    for (size_t i = 0; model.has_zeros && i < row.size(); i += model.chunk_bytes)
      if (random() % 5 != 0) std::memset(&row[i], 0, model.chunk_bytes);
  }
  return rows;
}
// Stages in front of `invariant`, with elements shorter and longer than chunks.
struct InvariantStages {
  ncast_dtype dtype;
  Trim trim;
  bool has_zeros;
};
inline const std::vector<InvariantStages> invariant_stages = {
    {NCAST_FLOAT32, {}, true},
    {NCAST_INT8, {1, 2, 1, 3}, true},
    {NCAST_FLOAT16, {5, 1, 0x15, 0}, false},
    {NCAST_INT64, {9, 33, 0x101, 5}, true},
};
// Replaces a row with one that does not shrink.
inline void make_random(Bytes& row, std::mt19937_64& random) {
  for (uint8_t& byte : row) byte = static_cast<uint8_t>(random());
}

}  // namespace narrowcast::store::cuda::test
