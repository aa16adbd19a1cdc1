#include "store/cuda/formats.h"

#include "store/rows/window_layout.h"

namespace narrowcast::store::cuda {

TableFormat format_of(const Model& model) {
  TableFormat format = {};
  format.row.elems = static_cast<uint32_t>(model.shape.elems);
  format.row.elem_bytes = static_cast<uint32_t>(model.elem_bytes());
  format.row.row_bytes = static_cast<uint32_t>(model.shape.row_bytes());
  format.row.has_zeros = model.has_zeros;
  format.row.has_trim = model.has_trim;
  const Trim& trim = model.trim;
  const int above = trim.low_bits + model.coded_bits();
  format.row.fill = trim.low | (above < 64 ? trim.high << above : 0);
  switch (model.coder) {
    case Coder::RAW: break;
    case Coder::PLAIN:
      format.coder.part_bits = static_cast<uint32_t>(model.coded_bits());
      // Without coded bits there is nothing to shift, and the count may be that of all bits.
      if (model.coded_bits() != 0) format.row.shift = static_cast<uint32_t>(trim.low_bits);
      break;
    case Coder::WINDOW: {
      const WindowLayout layout = window_layout(model.shape.dtype, trim.low_bits);
      format.coder.tail_bytes = static_cast<uint32_t>(layout.tail_bytes);
      format.coder.low_bits = static_cast<uint32_t>(trim.low_bits);
      break;
    }
    case Coder::INVARIANT:
      format.row.elems = static_cast<uint32_t>(model.chunks());
      format.coder.chunk_bytes = model.chunk_bytes;
      format.coder.clusters = model.clusters;
      format.coder.cluster_bits = static_cast<uint32_t>(model.cluster_bits());
      format.coder.masks = model.masks.data();
      format.coder.values = model.values.data();
      format.coder.trimmed_bits = model.trim_pattern().bits;
      format.coder.trimmed_values = model.trim_pattern().values;
      break;
  }
  return format;
}

}  // namespace narrowcast::store::cuda
