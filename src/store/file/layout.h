// The layout of a table file. docs/format/table.md is the specification.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::store::file {

inline constexpr uint64_t magic = 0x4c4241545453434e;  // "NCSTTABL" in memory order
inline constexpr uint32_t version = 1;
inline constexpr uint64_t page_bytes = 4096;      // sections start at multiples of this
inline constexpr uint64_t segment_bytes = 65536;  // what one checksum covers
inline constexpr uint32_t max_row_rank = 7;
inline constexpr uint64_t slot_align =
    32;  // strides of slots and entries are multiples of this, except for uncoded rows
inline constexpr uint64_t max_rows = uint64_t{1} << 40;
inline constexpr uint64_t max_row_bytes = uint64_t{1} << 40;
inline constexpr uint64_t max_frame_elems = uint64_t{1} << 24;
inline constexpr uint64_t max_entries = uint64_t{1} << 30;
inline constexpr uint64_t max_small_section_bytes = uint64_t{1} << 30;  // model, metadata

enum SectionNumber : uint32_t { model, metadata, data, offsets, entries, entry_rows, checksums, section_count };
inline constexpr const char* section_names[section_count] = {"model",   "metadata",   "data",     "offsets",
                                                             "entries", "entry rows", "checksums"};
// Sections whose content is covered by checksums of segments.
constexpr bool is_segmented(uint32_t section) { return section >= data && section <= entry_rows; }

struct Section {
  uint64_t offset;
  uint64_t bytes;
  uint64_t checksum;  // XXH3 of the content; 0 for segmented sections
};

// Little-endian. Bytes after the last member are zero, and the last eight are the XXH3 of all before.
struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint8_t dtype;
  uint8_t layout;
  uint8_t row_rank;
  uint8_t uncoded;
  uint32_t unit;
  uint64_t rows;
  uint64_t capacity;
  uint64_t spare;
  uint64_t stride;
  uint64_t entry_stride;
  uint64_t entries;
  uint64_t row_shape[max_row_rank];
  Section sections[section_count];

  uint64_t row_elems() const {
    uint64_t elems = 1;
    for (uint32_t i = 0; i < row_rank; ++i) elems *= row_shape[i];
    return elems;
  }
};
static_assert(sizeof(Header) == 296);
static_assert(offsetof(Header, row_shape) == 72 && offsetof(Header, sections) == 128);

constexpr uint64_t aligned(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }
constexpr uint64_t segments_of(uint64_t bytes) { return (bytes + segment_bytes - 1) / segment_bytes; }

}  // namespace narrowcast::store::file
