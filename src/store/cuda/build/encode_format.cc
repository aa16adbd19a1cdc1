#include "store/cuda/build/encode_format.h"

#include "store/rows/low_ones.h"
#include "store/rows/window_layout.h"

namespace narrowcast::store::cuda {

EncodeFormat encode_format_of(const Model& model) {
  EncodeFormat format = {};
  format.elems = static_cast<uint32_t>(model.shape.elems);
  format.row_bytes = static_cast<uint32_t>(model.shape.row_bytes());
  format.has_zeros = model.has_zeros ? 1 : 0;
  const Trim& trim = model.trim;
  const int coded_bits = model.coded_bits(), above = trim.low_bits + coded_bits;
  const uint64_t varying = coded_bits == 0 ? 0 : low_ones(coded_bits) << trim.low_bits;
  format.constant = low_ones(model.elem_bits()) & ~varying;
  format.values = trim.low | (above < 64 ? trim.high << above : 0);
  format.coded = low_ones(coded_bits);
  format.coded_bits = static_cast<uint32_t>(coded_bits);
  // Without coded bits there is nothing to shift, and the count may be that of all bits.
  if (coded_bits != 0) format.low_bits = static_cast<uint32_t>(trim.low_bits);
  if (model.coder == Coder::WINDOW)
    format.tail_bytes = static_cast<uint32_t>(window_layout(model.shape.dtype, trim.low_bits).tail_bytes);
  if (model.coder == Coder::INVARIANT) {
    format.chunks = static_cast<uint32_t>(model.chunks());
    format.clusters = model.clusters;
    format.cluster_bits = static_cast<uint32_t>(model.cluster_bits());
    format.masks = model.masks.data();
    format.cluster_values = model.values.data();
    format.constant = model.trim_pattern().bits;
    format.values = model.trim_pattern().values;
  }
  return format;
}

}  // namespace narrowcast::store::cuda
