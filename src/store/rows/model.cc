#include "store/rows/model.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "codec/window/format.h"
#include "store/rows/low_ones.h"

namespace narrowcast::store {
namespace {

struct CoderRow {
  Coder coder;
  const char* name;
  bool stages;
};
constexpr bool allowed = true, none = false;
constexpr CoderRow rows[] = {
#define STORE_ROW_CODER(id, SYMBOL, name, stages) {Coder::SYMBOL, #name, stages},
#include "store/rows/coders.def"
};

std::string number(uint64_t value) { return std::to_string(value); }

std::string problem_of_trim(const Model& model) {
  const Trim& trim = model.trim;
  if (trim.low_bits + trim.high_bits > model.elem_bits())
    return "trims " + std::to_string(trim.low_bits + trim.high_bits) + " bits of values of " +
           std::to_string(model.elem_bits());
  const auto exceeds = [](uint64_t value, int bits) { return bits < 64 && value >> bits != 0; };
  if (exceeds(trim.low, trim.low_bits) || exceeds(trim.high, trim.high_bits)) return "trimmed bits exceed their count";
  if (!model.has_trim && trim != Trim{}) return "trimmed bits without the stage trim";
  if (model.coder == Coder::WINDOW && (trim.high_bits != 0 || !window_allows(model.shape.dtype, trim.low_bits)))
    return "window cannot follow a trim of " + number(static_cast<uint64_t>(trim.low_bits)) + " low and " +
           number(static_cast<uint64_t>(trim.high_bits)) + " high bits of " + ncast_dtype_name(model.shape.dtype);
  return "";
}

std::string problem_of_masks(const Model& model) {
  const uint64_t row_bytes = model.shape.row_bytes();
  if (model.coder != Coder::INVARIANT)
    return model.chunk_bytes != 0 || model.clusters != 0 || !model.masks.empty() || !model.values.empty()
               ? "masks without the coder invariant"
               : "";
  if (!std::has_single_bit(model.chunk_bytes) || model.chunk_bytes > 8)
    return "chunks of " + number(model.chunk_bytes) + " bytes (known: 1, 2, 4, 8)";
  if (row_bytes % model.chunk_bytes != 0)
    return "rows of " + number(row_bytes) + " bytes do not consist of chunks of " + number(model.chunk_bytes);
  if (model.clusters < 1 || model.clusters > max_clusters)
    return number(model.clusters) + " clusters (1 to " + number(max_clusters) + ")";
  if (model.masks.size() != model.clusters * row_bytes || model.values.size() != model.clusters * row_bytes)
    return "masks of another size";
  for (size_t i = 0; i < model.masks.size(); ++i)
    if ((model.values[i] & ~model.masks[i]) != 0) return "values outside the masks";
  const TrimPattern trim = model.trim_pattern();
  for (size_t i = 0; i < model.masks.size(); ++i) {
    const auto bits = static_cast<uint8_t>(trim.bits >> i % row_bytes % 8 * 8);
    const auto values = static_cast<uint8_t>(trim.values >> i % row_bytes % 8 * 8);
    if ((model.masks[i] & bits) != bits || (model.values[i] & bits) != values) return "masks without the trimmed bits";
  }
  return "";
}

}  // namespace

void find_whole_masks(Model& model) {
  const auto row_bytes = static_cast<std::ptrdiff_t>(model.shape.row_bytes());
  model.has_whole_mask.clear();
  for (auto mask = model.masks.begin(); mask != model.masks.end(); mask += row_bytes)
    model.has_whole_mask.push_back(std::all_of(mask, mask + row_bytes, [](uint8_t byte) { return byte == 0xff; }));
}

const char* name_of(Coder coder) { return rows[static_cast<size_t>(coder)].name; }
bool allows_stages(Coder coder) { return rows[static_cast<size_t>(coder)].stages; }

TrimPattern Model::trim_pattern() const {
  const auto in_elem = [&](uint64_t low, uint64_t high) {
    return low | (trim.high_bits == 0 ? 0 : high << (elem_bits() - trim.high_bits));
  };
  TrimPattern pattern{in_elem(low_ones(trim.low_bits), low_ones(trim.high_bits)), in_elem(trim.low, trim.high)};
  for (int bits = elem_bits(); bits < 64; bits *= 2) {
    pattern.bits |= pattern.bits << bits;
    pattern.values |= pattern.values << bits;
  }
  return pattern;
}

int Model::cluster_bits() const { return clusters < 2 ? 0 : static_cast<int>(std::bit_width(clusters - 1)); }

bool window_allows(ncast_dtype dtype, int low_bits) {
  if (codec::window::value_type(dtype).value_bytes == 0) return false;
  switch (dtype) {
    case NCAST_FLOAT16: return low_bits == 0 || low_bits == 3;
    case NCAST_FLOAT32: return low_bits == 0 || low_bits == 8 || low_bits == 16;
    case NCAST_FLOAT64: return low_bits % 8 == 0 && low_bits <= 48;
    default: return low_bits == 0;
  }
}

std::string problem_of(const Model& model) {
  const size_t elem_bytes = ncast_dtype_bytes(model.shape.dtype);
  if (elem_bytes == 0) return "value type " + number(static_cast<uint64_t>(model.shape.dtype)) + " is unknown";
  if (model.shape.elems < 1 || model.shape.elems > max_row_bytes / elem_bytes)
    return "rows of " + number(model.shape.elems) + " values of " + number(elem_bytes) + " bytes (1 to " +
           number(max_row_bytes) + " bytes are possible)";
  if (static_cast<size_t>(model.coder) >= std::size(rows))
    return "coder " + number(static_cast<uint64_t>(model.coder)) + " is unknown";
  if (model.has_stages() && !allows_stages(model.coder))
    return std::string("no stage can precede ") + name_of(model.coder);
  if (model.coder == Coder::WINDOW && !window_allows(model.shape.dtype, 0))
    return std::string("window does not support ") + ncast_dtype_name(model.shape.dtype);
  const std::string trim = problem_of_trim(model);
  return !trim.empty() ? trim : problem_of_masks(model);
}

}  // namespace narrowcast::store
