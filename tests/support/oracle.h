// The expected results of the operations, computed serially by simple code.
#pragma once

#include <algorithm>
#include <type_traits>

#include "values.h"

namespace narrowcast::testing {

// Whether a < b, where -0 < +0. Neither is NaN.
template <typename T>
bool precedes(T a, T b) {
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}

template <typename T>
T combine(ncast_redop op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case NCAST_PROD: return a * b;
      case NCAST_MAX: return std::isnan(a) ? b : std::isnan(b) ? a : precedes(a, b) ? b : a;
      case NCAST_MIN: return std::isnan(a) ? b : std::isnan(b) ? a : precedes(b, a) ? b : a;
      default: return a + b;
    }
  } else {
    // Any sum or product of two values fits into 128 bits. The conversion back wraps around.
    const auto wide_a = static_cast<__int128>(a);
    const auto wide_b = static_cast<__int128>(b);
    switch (op) {
      case NCAST_PROD:
        return static_cast<T>(static_cast<unsigned __int128>(wide_a) * static_cast<unsigned __int128>(wide_b));
      case NCAST_MAX: return std::max(a, b);
      case NCAST_MIN: return std::min(a, b);
      default: return static_cast<T>(wide_a + wide_b);
    }
  }
}

// Reduces one value of every rank, in rank order.
template <typename T>
T reduce_numbers(ncast_redop op, const std::vector<T>& numbers) {
  T result = numbers[0];
  for (size_t rank = 1; rank < numbers.size(); ++rank) result = combine(op, result, numbers[rank]);
  if (op == NCAST_AVG) result = static_cast<T>(result / static_cast<T>(numbers.size()));
  return result;
}

template <typename T>
void reduce_as(ncast_redop op, const std::vector<Bytes>& inputs, Bytes* result) {
  std::vector<T> numbers(inputs.size());
  for (size_t i = 0; i < result->size() / sizeof(T); ++i) {
    for (size_t rank = 0; rank < inputs.size(); ++rank) numbers[rank] = load<T>(inputs[rank], i);
    store(*result, i, reduce_numbers(op, numbers));
  }
}

template <typename Bits>
void reduce_narrow(const Format& format, ncast_redop op, const std::vector<Bytes>& inputs, Bytes* result) {
  std::vector<float> numbers(inputs.size());
  for (size_t i = 0; i < result->size() / sizeof(Bits); ++i) {
    for (size_t rank = 0; rank < inputs.size(); ++rank)
      numbers[rank] = static_cast<float>(format.value(load<Bits>(inputs[rank], i)));
    const float reduced = reduce_numbers(op, numbers);
    // Store any NaN: the comparison does not distinguish them.
    store(*result, i, static_cast<Bits>(std::isnan(reduced) ? format.sign_bit() - 1 : format.round(reduced)));
  }
}

inline Bytes reduced(ncast_dtype dtype, ncast_redop op, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  switch (dtype) {
    case NCAST_INT8: reduce_as<int8_t>(op, inputs, &result); break;
    case NCAST_UINT8: reduce_as<uint8_t>(op, inputs, &result); break;
    case NCAST_INT32: reduce_as<int32_t>(op, inputs, &result); break;
    case NCAST_UINT32: reduce_as<uint32_t>(op, inputs, &result); break;
    case NCAST_INT64: reduce_as<int64_t>(op, inputs, &result); break;
    case NCAST_UINT64: reduce_as<uint64_t>(op, inputs, &result); break;
    case NCAST_FLOAT32: reduce_as<float>(op, inputs, &result); break;
    case NCAST_FLOAT64: reduce_as<double>(op, inputs, &result); break;
    case NCAST_FLOAT16:
    case NCAST_BFLOAT16: reduce_narrow<uint16_t>(*format_of(dtype), op, inputs, &result); break;
    case NCAST_FLOAT8_E4M3:
    case NCAST_FLOAT8_E5M2: reduce_narrow<uint8_t>(*format_of(dtype), op, inputs, &result); break;
  }
  return result;
}

// Whether all values have equal bits or are both NaN.
inline bool equal_numbers(ncast_dtype dtype, const Bytes& a, const Bytes& b) {
  if (a == b) return true;
  if (a.size() != b.size()) return false;
  const size_t value_bytes = ncast_dtype_bytes(dtype);
  for (size_t i = 0; i < a.size() / value_bytes; ++i) {
    if (std::memcmp(a.data() + i * value_bytes, b.data() + i * value_bytes, value_bytes) == 0) continue;
    if (!is_nan(dtype, a, i) || !is_nan(dtype, b, i)) return false;
  }
  return true;
}

inline Bytes concatenated(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

inline Bytes part_of(const Bytes& bytes, size_t first, size_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
  return Bytes(begin, begin + static_cast<std::ptrdiff_t>(count));
}

}  // namespace narrowcast::testing
