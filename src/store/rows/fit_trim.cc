#include "store/rows/fit_trim.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "store/rows/bit_counter.h"
#include "store/rows/load.h"
#include "store/rows/low_ones.h"
#include "store/rows/zero_map.h"

namespace narrowcast::store {
namespace {

// The bits that more than half of the elements have. With a zero map, elements that are 0 are none.
template <typename Elem>
uint64_t majority_of(const Sample& sample, bool has_zeros) {
  const uint8_t* const bytes = sample.row(0);
  const size_t count = sample.count * sample.row_bytes;
  uint64_t elems = count / sizeof(Elem);
  BitCounter counter;
  for (size_t at = 0; at < count; at += sizeof(uint64_t)) counter.add(load8(bytes + at, count - at));
  if (has_zeros)
    for (size_t at = 0; at < count; at += sizeof(Elem)) elems -= load<Elem>(bytes + at) == 0 ? 1 : 0;
  const std::array<uint64_t, 64>& counts = counter.counts();
  std::array<uint64_t, 8 * sizeof(Elem)> ones{};
  for (size_t bit = 0; bit < counts.size(); ++bit) ones[bit % ones.size()] += counts[bit];
  uint64_t majority = 0;
  for (size_t bit = 0; bit < ones.size(); ++bit)
    if (2 * ones[bit] > elems) majority |= uint64_t{1} << bit;
  return majority;
}

// Rows by the numbers of low and high bits in which all of their elements agree with the majority.
struct Rows {
  uint64_t count = 0;
  uint64_t elems = 0;
};
using Agreement = std::array<std::array<Rows, 65>, 65>;

// `agreement` by the numbers of low and high bits.
template <typename Elem>
void count_agreement(const Sample& sample, bool has_zeros, Elem majority, Agreement& agreement) {
  constexpr int bits = 8 * sizeof(Elem);
  for (uint64_t row = 0; row < sample.count; ++row) {
    Elem differs = 0;
    uint64_t elems = 0;
    for (size_t at = 0; at < sample.row_bytes; at += sizeof(Elem)) {
      const Elem elem = load<Elem>(sample.row(row) + at);
      const bool is_elem = !has_zeros || elem != 0;
      differs = static_cast<Elem>(differs | (is_elem ? elem ^ majority : 0));
      elems += is_elem ? 1 : 0;
    }
    const auto low = std::min(std::countr_zero(differs), bits), high = std::min(std::countl_zero(differs), bits);
    Rows& rows = agreement[static_cast<size_t>(low)][static_cast<size_t>(high)];
    ++rows.count;
    rows.elems += elems;
  }
}

}  // namespace

void fit_trim(const Sample& sample, Model& model) {
  const int bits = model.elem_bits();
  uint64_t majority = 0;
  auto agreement = std::make_unique<Agreement>();
  with_elem(model.elem_bytes(), [&]<typename Elem>() {
    majority = majority_of<Elem>(sample, model.has_zeros);
    count_agreement(sample, model.has_zeros, static_cast<Elem>(majority), *agreement);
  });

  // Rows that do not agree are stored raw. `invariant` has a map of chunks and saves more than the trim: with the bits
  // of a map, rows would seem to be cheaper raw, and so a trim that suits none of them.
  const auto map_bits = model.has_zeros && model.coder != Coder::INVARIANT ? model.shape.elems : 0;
  uint64_t least = ~uint64_t{0};
  for (int low = 0; low <= bits; ++low) {
    if (model.coder == Coder::WINDOW && !window_allows(model.shape.dtype, low)) continue;
    for (int high = 0; high <= (model.coder == Coder::WINDOW ? 0 : bits - low); ++high) {
      Rows agreeing;
      for (int l = low; l <= bits; ++l)
        for (int h = high; h <= bits; ++h) {
          agreeing.count += (*agreement)[static_cast<size_t>(l)][static_cast<size_t>(h)].count;
          agreeing.elems += (*agreement)[static_cast<size_t>(l)][static_cast<size_t>(h)].elems;
        }
      const uint64_t cost = (sample.count - agreeing.count) * 8 * sample.row_bytes + agreeing.count * map_bits +
                            agreeing.elems * static_cast<uint64_t>(bits - low - high);
      if (cost >= least) continue;
      least = cost;
      model.trim = {low, high, majority & low_ones(low), high == 0 ? 0 : (majority & low_ones(bits)) >> (bits - high)};
    }
  }
}

}  // namespace narrowcast::store
