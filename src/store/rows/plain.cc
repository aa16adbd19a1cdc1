// The fast coder `plain`: the varying bits of each element.
#include <cstring>

#include "store/rows/bit_stream.h"
#include "store/rows/fast.h"
#include "store/rows/low_ones.h"
#include "store/rows/zero_map.h"

namespace narrowcast::store {
namespace {

// The trim as masks over an element.
struct Masks {
  uint64_t constant;  // the bits of the trim
  uint64_t values;    // and their values
  int low_bits;       // less than 64
  int coded_bits;
  uint64_t coded;
};

Masks masks_of(const Model& model) {
  const int bits = model.elem_bits(), coded_bits = model.coded_bits(), low_bits = model.trim.low_bits;
  const uint64_t varying = coded_bits == 0 ? 0 : low_ones(coded_bits) << low_bits;
  const int above = low_bits + coded_bits;
  const uint64_t high = above == 64 ? 0 : model.trim.high << above;
  return {low_ones(bits) & ~varying, model.trim.low | high, coded_bits == 0 ? 0 : low_bits, coded_bits,
          low_ones(coded_bits)};
}

template <typename Elem>
bool put_elems(const Masks& masks, const uint8_t* elems, size_t count, FastBitWriter& to) {
  FastBitWriter writer = to;  // a local copy stays in registers
  uint64_t differs = 0;
  for (size_t i = 0; i < count; ++i) {
    Elem elem;
    std::memcpy(&elem, elems + i * sizeof elem, sizeof elem);
    differs |= (elem & masks.constant) ^ masks.values;
    writer.put(elem >> masks.low_bits & masks.coded, masks.coded_bits);
  }
  to = writer;
  return differs == 0;
}

template <typename Elem>
void get_elems(const Masks& masks, FastBitReader reader, size_t count, uint8_t* elems) {
  for (size_t i = 0; i < count; ++i) {
    const auto elem = static_cast<Elem>((reader.peek() & masks.coded) << masks.low_bits | masks.values);
    reader.skip(static_cast<size_t>(masks.coded_bits));
    std::memcpy(elems + i * sizeof elem, &elem, sizeof elem);
  }
}

template <InstructionSet set>
size_t encode(const Model& model, const uint8_t* row, uint8_t* payload) {
  alignas(64) uint8_t stream[stream_buffer_bytes];
  alignas(64) uint8_t present[max_row_bytes + present_slack];
  alignas(64) uint8_t map[max_map_bytes];
  FastBitWriter writer(stream, first_coder_bit);
  size_t elems = model.shape.elems;
  if (model.has_zeros) {
    elems = split_zeros(set, model.elem_bytes(), row, elems, map, present);
    for (size_t first = 0; first < model.shape.elems; first += 32) {
      uint32_t bits;
      std::memcpy(&bits, map + first / 8, sizeof bits);
      writer.put(bits, static_cast<int>(model.shape.elems - first < 32 ? model.shape.elems - first : 32));
    }
    row = present;
  }
  const Masks masks = masks_of(model);
  const bool follows =
      with_elem(model.elem_bytes(), [&]<typename Elem>() { return put_elems<Elem>(masks, row, elems, writer); });
  if (!follows) return 0;
  const size_t bytes = writer.finish();
  if (bytes >= header_bytes + aligned4(model.shape.row_bytes())) return 0;
  std::memcpy(payload, stream, bytes);
  return bytes;
}

bool decode(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) {
  alignas(64) uint8_t stream[stream_buffer_bytes];
  const size_t bits = copy_stream(header, body, body_bytes, model.shape.row_bytes(), stream);
  FastBitReader reader(stream, first_coder_bit);
  const Masks masks = masks_of(model);
  const auto coded_bits = static_cast<size_t>(masks.coded_bits);
  size_t elems = model.shape.elems;
  if (!model.has_zeros) {
    if (aligned4((reader.position() + elems * coded_bits + 7) / 8) > bits / 8) return false;
    with_elem(model.elem_bytes(), [&]<typename Elem>() { get_elems<Elem>(masks, reader, elems, row); });
    return true;
  }
  if (reader.position() + elems > bits) return false;
  alignas(64) uint8_t map[max_map_bytes];
  for (size_t first = 0; first < elems; first += 32) {
    const auto word = static_cast<uint32_t>(reader.peek());
    std::memcpy(map + first / 8, &word, sizeof word);
    reader.skip(elems - first < 32 ? elems - first : 32);
  }
  const size_t count = count_present(map, elems);
  if (aligned4((reader.position() + count * coded_bits + 7) / 8) > bits / 8) return false;
  alignas(64) uint8_t present[max_row_bytes + 64];
  with_elem(model.elem_bytes(), [&]<typename Elem>() { get_elems<Elem>(masks, reader, count, present); });
  std::memset(present + count * static_cast<size_t>(model.elem_bytes()), 0, sizeof(uint64_t));
  join_zeros(model.elem_bytes(), map, present, elems, row);
  return true;
}

}  // namespace

RowCoder fast_plain(InstructionSet set) {
  // Only the stage `zeros` has instructions of its own.
  if (set == InstructionSet::avx512) return {encode<InstructionSet::avx512>, decode};
  return {encode<InstructionSet::baseline>, decode};
}

}  // namespace narrowcast::store
