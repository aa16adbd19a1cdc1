// What the coders know about a table: stages, coder, and their constants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "narrowcast/types.h"
#include "store/rows/row_codec.h"

namespace narrowcast::store {

enum class Coder : uint8_t {
#define STORE_ROW_CODER(id, SYMBOL, name, stages) SYMBOL = (id),
#include "store/rows/coders.def"
};
const char* name_of(Coder coder);
bool allows_stages(Coder coder);

// Constant bits at both ends of a value. The coded bits of a value are those between them.
struct Trim {
  int low_bits = 0;
  int high_bits = 0;
  uint64_t low = 0;   // the value of the low bits
  uint64_t high = 0;  // the value of the high bits
  bool operator==(const Trim&) const = default;
};

// The trimmed bits in eight bytes of a row, little-endian, which begin at a multiple of 8.
struct TrimPattern {
  uint64_t bits = 0;    // 1: trimmed
  uint64_t values = 0;  // of these bits; 0 elsewhere
};

struct Model {
  RowShape shape{};
  Coder coder = Coder::RAW;
  bool has_zeros = false;
  bool has_trim = false;
  Trim trim;

  // Only for `invariant`. Masks and values have one row for each cluster, as long as a row of the table.
  uint32_t chunk_bytes = 0;
  uint32_t clusters = 0;
  std::vector<uint8_t> masks;   // 1: the bit is equal in most rows; contain the trimmed bits
  std::vector<uint8_t> values;  // these bits; 0 where the mask is 0
  // What find_whole_masks() has found; empty: unknown. Not serialised.
  std::vector<uint8_t> has_whole_mask;  // of each cluster: 1 if all bits of its mask are 1

  int elem_bytes() const { return static_cast<int>(ncast_dtype_bytes(shape.dtype)); }
  int elem_bits() const { return 8 * elem_bytes(); }
  int coded_bits() const { return elem_bits() - trim.low_bits - trim.high_bits; }
  bool has_stages() const { return has_zeros || has_trim; }
  TrimPattern trim_pattern() const;
  uint64_t chunks() const { return shape.row_bytes() / chunk_bytes; }
  int cluster_bits() const;
  bool is_whole(uint32_t cluster) const { return cluster < has_whole_mask.size() && has_whole_mask[cluster] != 0; }
};

// For tables with many zeros, whose encoder takes less time then.
void find_whole_masks(Model& model);

// Whether `window` can follow a trim of these bits: fp32 8 or 16, fp16 3, fp64 a multiple of 8 up to 48, or none.
bool window_allows(ncast_dtype dtype, int low_bits);

// A message if the model violates the format, otherwise "". Does not examine masks and values if their sizes are wrong.
std::string problem_of(const Model& model);

}  // namespace narrowcast::store
