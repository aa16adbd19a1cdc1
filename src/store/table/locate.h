// Where the payload of a row is, and what it can be replaced with.
#pragma once

#include <atomic>
#include <cstring>

#include "store/rows/format.h"
#include "store/table/table.h"

namespace narrowcast::store {

inline std::atomic_ref<uint32_t> atomic_word(uint8_t* at) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at));
}

// The slot of a row, or its payload in layout packed.
inline uint8_t* slot_of(const TableView& view, uint64_t row) {
  return view.layout == Layout::stride ? view.data + row * view.stride
                                       : view.data + uint64_t{view.offsets[row]} * view.unit;
}
inline uint64_t slot_bytes(const TableView& view, uint64_t row) {
  return view.layout == Layout::stride ? view.stride : uint64_t{view.offsets[row + 1] - view.offsets[row]} * view.unit;
}
// The word that says whether the row is in its slot or in an overflow entry. NULL: always in its slot.
inline uint8_t* word_of(const TableView& view, uint64_t row) {
  if (!view.uncoded) return slot_of(view, row);
  return view.row_words == nullptr ? nullptr : reinterpret_cast<uint8_t*>(view.row_words + row);
}

// A payload: a header word and a body. For uncoded tables the body is the row.
struct Payload {
  uint32_t header;
  const uint8_t* body;
  uint64_t body_bytes;  // of the slot or the entry
  bool in_entry;
  uint64_t entry;
};

// Finds the payload of a row below rows(). Returns false if the table is damaged. The caller is inside a call as a
// reader: what is found stays unchanged until it leaves.
inline bool locate(Table& table, uint64_t row, Payload* payload) {
  const TableView& view = table.view;
  uint64_t offset = row * view.stride, bytes = view.stride;
  if (view.layout == Layout::packed) {
    // Read once: others may be writing to the file that is mapped.
    const auto read = [&](uint64_t i) {
      return uint64_t{std::atomic_ref<uint32_t>(view.offsets[i]).load(std::memory_order_relaxed)} * view.unit;
    };
    offset = read(row);
    const uint64_t end = read(row + 1);
    if (offset >= end || end > view.data_bytes) return false;
    bytes = end - offset;
  }
  uint8_t* const slot = view.data + offset;
  if (!table.checks.are_good(file::data, offset, offset + bytes)) return false;
  const bool redirects =
      !view.uncoded || (view.row_words != nullptr && std::atomic_ref<uint32_t>(view.control->any_redirect).load() != 0);
  const uint32_t word = redirects ? atomic_word(view.uncoded ? word_of(view, row) : slot).load() : 0;
  if (!is_redirect(word)) {
    *payload = view.uncoded ? Payload{0, slot, bytes, false, 0}
                            : Payload{word, slot + header_bytes, bytes - header_bytes, false, 0};
    return true;
  }
  const uint64_t entry = entry_of(word);
  if (entry >= view.entry_count) return false;
  uint8_t* const at = view.entries + entry * view.entry_stride;
  if (!table.checks.are_good(file::entries, entry * view.entry_stride, (entry + 1) * view.entry_stride)) return false;
  if (view.uncoded) {
    *payload = {0, at, view.entry_stride, true, entry};
  } else {
    uint32_t header;
    std::memcpy(&header, at, sizeof header);
    *payload = {header, at + header_bytes, view.entry_stride - header_bytes, true, entry};
  }
  return true;
}

// Decodes a payload. Returns false if it does not follow the format.
inline bool decode(const Table& table, const Payload& payload, uint8_t* row) {
  if (!table.view.uncoded) return table.model->decode(payload.header, payload.body, payload.body_bytes, row);
  std::memcpy(row, payload.body, table.view.row_bytes);
  return true;
}

}  // namespace narrowcast::store
