#include "store/rows/fit_trim.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

namespace narrowcast::store {
namespace {

uint64_t low_ones(int count) { return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

template <typename Visit>
void for_each_elem(const Sample& sample, uint64_t row, const Model& model, Visit visit) {
  const auto elem_bytes = static_cast<size_t>(model.elem_bytes());
  for (const uint8_t* at = sample.row(row); at != sample.row(row + 1); at += elem_bytes) {
    uint64_t elem = 0;
    std::memcpy(&elem, at, elem_bytes);
    if (elem != 0 || !model.has_zeros) visit(elem);
  }
}

// The bits that more than half of the elements have.
uint64_t majority_of(const Sample& sample, const Model& model) {
  std::array<uint64_t, 64> ones{};
  uint64_t elems = 0;
  for (uint64_t row = 0; row < sample.count; ++row)
    for_each_elem(sample, row, model, [&](uint64_t elem) {
      ++elems;
      for (; elem != 0; elem &= elem - 1) ++ones[static_cast<size_t>(std::countr_zero(elem))];
    });
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

}  // namespace

void fit_trim(const Sample& sample, Model& model) {
  const int bits = model.elem_bits();
  const uint64_t majority = majority_of(sample, model);
  auto agreement = std::make_unique<Agreement>();
  for (uint64_t row = 0; row < sample.count; ++row) {
    uint64_t differs = 0, elems = 0;
    for_each_elem(sample, row, model, [&](uint64_t elem) {
      differs |= elem ^ majority;
      ++elems;
    });
    const int low = std::min(std::countr_zero(differs), bits);
    const int high = std::min(std::countl_zero(differs) - (64 - bits), bits);
    Rows& rows = (*agreement)[static_cast<size_t>(low)][static_cast<size_t>(high)];
    ++rows.count;
    rows.elems += elems;
  }

  // Rows that do not agree are stored raw.
  const auto map_bits = model.has_zeros ? model.shape.elems : 0;
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
