// Rules of reductions that tests with random values do not cover.
#include "executor/host/reduction.h"

#include <limits>
#include <utility>

#include "doctest/doctest.h"
#include "support/values.h"

namespace narrowcast::testing {
namespace {

template <typename T>
T reduce_numbers(ncast_dtype dtype, ncast_redop op, const std::vector<T>& numbers) {
  alignas(8) unsigned char accumulator[8];
  T result;
  for (size_t rank = 0; rank < numbers.size(); ++rank) {
    if (rank == 0) {
      executor::host::accumulate_first(dtype, &numbers[rank], 1, accumulator);
    } else {
      executor::host::accumulate(dtype, op, &numbers[rank], 1, accumulator);
    }
  }
  executor::host::finish(dtype, op, static_cast<int>(numbers.size()), accumulator, 1, &result);
  return result;
}

TEST_CASE("integers wrap around") {
  CHECK(reduce_numbers<int8_t>(NCAST_INT8, NCAST_SUM, {127, 1}) == -128);
  CHECK(reduce_numbers<uint8_t>(NCAST_UINT8, NCAST_PROD, {200, 200}) == static_cast<uint8_t>(40000));
  CHECK(reduce_numbers<int32_t>(NCAST_INT32, NCAST_SUM, {std::numeric_limits<int32_t>::max(), 1}) ==
        std::numeric_limits<int32_t>::min());
  CHECK(reduce_numbers<int64_t>(NCAST_INT64, NCAST_PROD, {int64_t{1} << 62, 2}) == std::numeric_limits<int64_t>::min());
}

TEST_CASE("the average of integers is truncated toward zero") {
  CHECK(reduce_numbers<int32_t>(NCAST_INT32, NCAST_AVG, {-3, -4}) == -3);
  CHECK(reduce_numbers<int32_t>(NCAST_INT32, NCAST_AVG, {3, 4}) == 3);
  CHECK(reduce_numbers<uint8_t>(NCAST_UINT8, NCAST_AVG, {1, 2, 3, 5}) == 2);
}

TEST_CASE("factors multiply in the type of sums, and products are rounded once") {
  const uint16_t values[] = {0x3f80, 0x3f82, 0xc040};  // 1, 1.015625 and -3
  uint16_t scaled[3] = {};
  executor::host::scale(NCAST_BFLOAT16, {1.0 / 3, nullptr}, values, 3, scaled);
  CHECK(scaled[0] == 0x3eab);
  CHECK(scaled[1] == 0x3ead);  // in bfloat16, 1 / 3 is larger, and so would be the product
  CHECK(scaled[2] == 0xbf80);
  const uint16_t half = 0x3f00;
  executor::host::scale(NCAST_BFLOAT16, {0, &half}, values, 3, scaled);
  CHECK(scaled[1] == 0x3f02);
  const double third = 1.0 / 3;
  double product = 0;
  executor::host::scale(NCAST_FLOAT64, {third, nullptr}, &third, 1, &product);
  CHECK(product == third * third);
}

TEST_CASE("sums are computed in rank order and rounded once") {
  // 256 + 1 + 1 in bfloat16: if each step were rounded, the sum would remain 256.
  CHECK(reduce_numbers<uint16_t>(NCAST_BFLOAT16, NCAST_SUM, {0x4380, 0x3f80, 0x3f80}) == 0x4381);
  CHECK(reduce_numbers<float>(NCAST_FLOAT32, NCAST_SUM, {1e30f, -1e30f, 1.0f}) == 1.0f);
  CHECK(reduce_numbers<float>(NCAST_FLOAT32, NCAST_SUM, {1.0f, 1e30f, -1e30f}) == 0.0f);
}

TEST_CASE("minimum and maximum ignore NaN unless all values are NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(reduce_numbers<float>(NCAST_FLOAT32, NCAST_MAX, {nan, 1, nan}) == 1);
  CHECK(reduce_numbers<float>(NCAST_FLOAT32, NCAST_MIN, {2, nan, 3}) == 2);
  CHECK(std::isnan(reduce_numbers<float>(NCAST_FLOAT32, NCAST_MAX, {nan, nan})));
}

template <typename Bits>
void check_zeros(ncast_dtype dtype) {
  const Bits zero = 0;
  const Bits minus_zero = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  CAPTURE(ncast_dtype_name(dtype));
  for (const auto& [a, b] : {std::pair{zero, minus_zero}, {minus_zero, zero}}) {
    CHECK(reduce_numbers<Bits>(dtype, NCAST_MAX, {a, b}) == zero);
    CHECK(reduce_numbers<Bits>(dtype, NCAST_MIN, {a, b}) == minus_zero);
  }
  CHECK(reduce_numbers<Bits>(dtype, NCAST_MAX, {minus_zero, minus_zero}) == minus_zero);
  CHECK(reduce_numbers<Bits>(dtype, NCAST_MIN, {zero, zero}) == zero);
}

TEST_CASE("-0 is smaller than +0") {
  check_zeros<uint16_t>(NCAST_FLOAT16);
  check_zeros<uint16_t>(NCAST_BFLOAT16);
  check_zeros<uint32_t>(NCAST_FLOAT32);
  check_zeros<uint64_t>(NCAST_FLOAT64);
  check_zeros<uint8_t>(NCAST_FLOAT8_E4M3);
  check_zeros<uint8_t>(NCAST_FLOAT8_E5M2);
}

TEST_CASE("minimum and maximum of equal integers are that integer") {
  for (const ncast_redop op : {NCAST_MIN, NCAST_MAX}) {
    CHECK(reduce_numbers<int8_t>(NCAST_INT8, op, {-1, -1}) == -1);
    CHECK(reduce_numbers<uint64_t>(NCAST_UINT64, op, {7, 7}) == 7);
  }
}

}  // namespace
}  // namespace narrowcast::testing
