// The coder `window` with vector instructions: the stage `zeros`, and the header word. The values are coded by the
// functions of window_path.h.
#include <cstring>

#include "store/rows/fast.h"
#include "store/rows/window_path.h"
#include "store/rows/zero_map.h"

namespace narrowcast::store {
namespace {

using window::ValuesCoder;

template <InstructionSet set>
size_t encode(const Model& model, const uint8_t* row, uint8_t* payload) {
  const ValuesCoder coder = window::values_coder<set>(model.shape.dtype, model.trim.low_bits != 0);
  const size_t room = aligned4(model.shape.row_bytes());
  uint32_t header = 0;
  size_t bytes = 0;
  if (model.has_zeros) {
    alignas(64) uint8_t present[max_row_bytes + present_slack];
    alignas(64) uint8_t map[max_map_bytes];
    const size_t map_bytes = aligned4((model.shape.elems + 7) / 8);
    const size_t elems = split_zeros(set, model.elem_bytes(), row, model.shape.elems, map, present);
    if (map_bytes >= room) return 0;
    std::memcpy(payload + header_bytes, map, map_bytes);
    bytes =
        map_bytes + coder.encode(model, present, elems, payload + header_bytes + map_bytes, room - map_bytes, &header);
  } else {
    bytes = coder.encode(model, row, model.shape.elems, payload + header_bytes, room, &header);
  }
  if (bytes >= room) return 0;
  std::memcpy(payload, &header, header_bytes);
  return header_bytes + bytes;
}

template <InstructionSet set>
bool decode(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) {
  const ValuesCoder coder = window::values_coder<set>(model.shape.dtype, model.trim.low_bits != 0);
  if (!model.has_zeros) return coder.decode(model, header, body, body_bytes, model.shape.elems, row);
  const size_t map_bytes = aligned4((model.shape.elems + 7) / 8);
  if (body_bytes < map_bytes) return false;
  const size_t elems = count_present(body, model.shape.elems);
  alignas(64) uint8_t present[max_row_bytes + present_slack];
  if (!coder.decode(model, header, body + map_bytes, body_bytes - map_bytes, elems, present)) return false;
  // join_zeros() reads one element more than there are, and masks it.
  std::memset(present + elems * static_cast<size_t>(model.elem_bytes()), 0, sizeof(uint64_t));
  join_zeros(model.elem_bytes(), body, present, model.shape.elems, row);
  return true;
}

}  // namespace

RowCoder fast_window(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx512) return {encode<InstructionSet::avx512>, decode<InstructionSet::avx512>};
  if (set == InstructionSet::avx2) return {encode<InstructionSet::avx2>, decode<InstructionSet::avx2>};
#endif
  return {encode<InstructionSet::baseline>, decode<InstructionSet::baseline>};
}

}  // namespace narrowcast::store
