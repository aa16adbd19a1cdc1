// Rows of vector clocks against plain vectors.
#include "plan/verify/clocks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "doctest/doctest.h"

namespace narrowcast::plan::verify {
namespace {

// A row, and what it must be.
struct Checked {
  Row row;
  std::vector<uint32_t> expected;
};

// Raises, copies and joins rows at random. Most changes concern the components near a row's own, as those of groups do.
void check_rows(size_t components, size_t count, int changes, int hash_bits, uint32_t seed) {
  CAPTURE(components);
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  Rows rows(components, hash_bits);
  std::vector<Checked> all(count, {{}, std::vector<uint32_t>(components)});
  for (int i = 0; i < changes; ++i) {
    const size_t number = below(count);
    Checked &one = all[number], &other = all[below(count)];
    switch (below(4)) {
      case 0: one = other; break;
      case 1: {
        const size_t near = number * components / count + below(8);
        const size_t component = below(8) == 0 ? below(components) : std::min(near, components - 1);
        const uint32_t epoch = one.expected[component] + static_cast<uint32_t>(below(4));
        one.row.raise(rows, component, epoch);
        one.expected[component] = std::max(one.expected[component], epoch);
        break;
      }
      default:
        one.row.join(rows, other.row);
        for (size_t c = 0; c < components; ++c) one.expected[c] = std::max(one.expected[c], other.expected[c]);
    }
    const size_t component = below(components);
    REQUIRE(one.row[component] == one.expected[component]);
  }
  size_t wrong = 0;
  for (const Checked& one : all)
    for (size_t component = 0; component < components; ++component)
      wrong += one.row[component] != one.expected[component] ? 1 : 0;
  CHECK(wrong == 0);
}

TEST_CASE("rows of vector clocks have the values of plain vectors") {
  const uint32_t seed = std::random_device()();
  for (const size_t components : {1, 63, 64, 65, 1000, 4096}) check_rows(components, 20, 4000, 16, seed);
  check_rows(20'000, 50, 5000, 16, seed);
  for (const size_t count : {3, 10, 50})
    for (const int hash_bits : {1, 3, 6, 8}) check_rows(4097, count, 5000, hash_bits, seed);
}

TEST_CASE("rows without changes are zeros") {
  Rows rows(300);
  Row row;
  row.join(rows, Row());
  row.raise(rows, 299, 0);
  CHECK(row[0] == 0);
  CHECK(row[299] == 0);
  Row other;
  other.raise(rows, 7, 5);
  row.join(rows, other);
  other.raise(rows, 7, 6);
  CHECK(row[7] == 5);
  CHECK(other[7] == 6);
}

}  // namespace
}  // namespace narrowcast::plan::verify
