#include "executor/host/reduction.h"

#include <bit>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "executor/host/convert.h"

namespace narrowcast::executor::host {
namespace {

// The types of a value in a buffer and of its accumulator.
template <typename StoredType, typename AccumulatorType>
struct ValueType {
  using Stored = StoredType;
  using Accumulator = AccumulatorType;

  static Accumulator widen(Stored value) {
    if constexpr (std::is_arithmetic_v<Stored>) {
      return value;
    } else {
      return to_float(value);
    }
  }
  static Stored narrow(Accumulator value) {
    if constexpr (std::is_arithmetic_v<Stored>) {
      return value;
    } else {
      return from_float<Stored>(value);
    }
  }
};

// Calls body(ValueType<...>{}). dtype must be valid.
template <typename Body>
auto with_value_type(ncast_dtype dtype, Body&& body) {
  switch (dtype) {
    case NCAST_INT8: return body(ValueType<int8_t, int8_t>{});
    case NCAST_UINT8: return body(ValueType<uint8_t, uint8_t>{});
    case NCAST_INT32: return body(ValueType<int32_t, int32_t>{});
    case NCAST_UINT32: return body(ValueType<uint32_t, uint32_t>{});
    case NCAST_INT64: return body(ValueType<int64_t, int64_t>{});
    case NCAST_UINT64: return body(ValueType<uint64_t, uint64_t>{});
    case NCAST_FLOAT16: return body(ValueType<Float16, float>{});
    case NCAST_FLOAT32: return body(ValueType<float, float>{});
    case NCAST_FLOAT64: return body(ValueType<double, double>{});
    case NCAST_BFLOAT16: return body(ValueType<BFloat16, float>{});
    case NCAST_FLOAT8_E4M3: return body(ValueType<Float8E4M3, float>{});
    case NCAST_FLOAT8_E5M2: break;
  }
  return body(ValueType<Float8E5M2, float>{});
}

// Integers wrap around: compute in an unsigned type of at least 32 bits, for which overflow is defined.
template <typename T, typename Operation>
T arithmetic(T a, T b, Operation operation) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    return static_cast<T>(operation(static_cast<Wide>(a), static_cast<Wide>(b)));
  } else {
    return operation(a, b);
  }
}

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    return arithmetic(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Product {
  template <typename T>
  static T apply(T a, T b) {
    return arithmetic(a, b, [](auto x, auto y) { return x * y; });
  }
};
// The result if a == b: the bits that both have, or that either has. They are those of a, except for the sign of -0 and
// +0.
template <typename T, typename Operation>
T of_equal(T a, T b, Operation operation) {
  if constexpr (std::is_integral_v<T>) {
    return a;
  } else {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    return std::bit_cast<T>(operation(std::bit_cast<Bits>(a), std::bit_cast<Bits>(b)));
  }
}

// `a != a` is true only for NaN.
struct Maximum {
  template <typename T>
  static T apply(T a, T b) {
    const T equal = of_equal(a, b, std::bit_and<>());
    return a == b ? equal : b > a || a != a ? b : a;
  }
};
struct Minimum {
  template <typename T>
  static T apply(T a, T b) {
    const T equal = of_equal(a, b, std::bit_or<>());
    return a == b ? equal : b < a || a != a ? b : a;
  }
};

template <typename Operation, typename Value>
void accumulate_with(const void* values, size_t elems, void* accumulator) {
  const auto* from = static_cast<const typename Value::Stored*>(values);
  auto* to = static_cast<typename Value::Accumulator*>(accumulator);
  for (size_t i = 0; i < elems; ++i) to[i] = Operation::apply(to[i], Value::widen(from[i]));
}

}  // namespace

ncast_dtype accumulator_type(ncast_dtype dtype) {
  return with_value_type(dtype, [dtype](auto value) {
    using Value = decltype(value);
    return std::is_same_v<typename Value::Stored, typename Value::Accumulator> ? dtype : NCAST_FLOAT32;
  });
}

void scale(ncast_dtype dtype, const Factor& factor, const void* values, size_t elems, void* scaled) {
  with_value_type(dtype, [&](auto value) {
    using Value = decltype(value);
    using Stored = typename Value::Stored;
    using Accumulator = typename Value::Accumulator;
    const auto number = factor.in_memory == nullptr ? static_cast<Accumulator>(factor.value)
                                                    : Value::widen(*static_cast<const Stored*>(factor.in_memory));
    const auto* from = static_cast<const Stored*>(values);
    auto* to = static_cast<Stored*>(scaled);
    for (size_t i = 0; i < elems; ++i) to[i] = Value::narrow(static_cast<Accumulator>(Value::widen(from[i]) * number));
  });
}

void accumulate_first(ncast_dtype dtype, const void* values, size_t elems, void* accumulator) {
  with_value_type(dtype, [&](auto value) {
    using Value = decltype(value);
    const auto* from = static_cast<const typename Value::Stored*>(values);
    auto* to = static_cast<typename Value::Accumulator*>(accumulator);
    for (size_t i = 0; i < elems; ++i) to[i] = Value::widen(from[i]);
  });
}

void accumulate(ncast_dtype dtype, ncast_redop op, const void* values, size_t elems, void* accumulator) {
  with_value_type(dtype, [&](auto value) {
    using Value = decltype(value);
    switch (op) {
      case NCAST_PROD: return accumulate_with<Product, Value>(values, elems, accumulator);
      case NCAST_MAX: return accumulate_with<Maximum, Value>(values, elems, accumulator);
      case NCAST_MIN: return accumulate_with<Minimum, Value>(values, elems, accumulator);
      case NCAST_SUM:
      case NCAST_AVG: break;
    }
    return accumulate_with<Sum, Value>(values, elems, accumulator);
  });
}

void finish(ncast_dtype dtype, ncast_redop op, int ranks, const void* accumulator, size_t elems, void* values) {
  with_value_type(dtype, [&](auto value) {
    using Value = decltype(value);
    using Accumulator = typename Value::Accumulator;
    const auto* from = static_cast<const Accumulator*>(accumulator);
    auto* to = static_cast<typename Value::Stored*>(values);
    if (op == NCAST_AVG) {
      const auto divisor = static_cast<Accumulator>(ranks);
      for (size_t i = 0; i < elems; ++i) to[i] = Value::narrow(static_cast<Accumulator>(from[i] / divisor));
    } else {
      for (size_t i = 0; i < elems; ++i) to[i] = Value::narrow(from[i]);
    }
  });
}

}  // namespace narrowcast::executor::host
