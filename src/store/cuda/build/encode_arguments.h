// The arguments of the kernels that encode rows: plain structs, shared by host and device code.
#pragma once

#include <cstdint>

namespace narrowcast::store::cuda {

// What the kernels know of a model.
struct EncodeFormat {
  uint32_t elems;
  uint32_t row_bytes;
  uint32_t has_zeros;
  // The trim: an element has `values` in the bits `constant`, and its coded bits are element >> low_bits & coded.
  // invariant: `constant` and `values` are of eight bytes of a row.
  uint64_t constant;
  uint64_t values;
  uint64_t coded;
  uint32_t low_bits;
  uint32_t coded_bits;
  uint32_t tail_bytes;    // window: of an element after the trim
  uint32_t chunks;        // invariant
  uint32_t clusters;      // invariant
  uint32_t cluster_bits;  // invariant
  const void* masks;      // invariant: as long as a row, one for each cluster; in device memory
  const void* cluster_values;
};

// Encodes rows to payloads at equal distances.
struct EncodeArguments {
  EncodeFormat format;
  const char* rows;  // device memory, aligned to an element, or to a chunk
  uint64_t row_stride;
  uint32_t count;
  uint32_t payload_pitch;  // at least RowModel::bound(), a multiple of 16
  char* payloads;
  uint32_t* lengths;  // of the payloads, in bytes
  // With the stage `zeros`, unless the coder is `invariant`, for each warp: present elements, then the zero map.
  char* scratch;
  uint32_t scratch_pitch;  // a multiple of 16
  uint32_t map_offset;     // a multiple of 8
};

// Payloads that are stored end to end, of one call.
struct PackedRun {
  uint32_t begin;  // units of the calls before, since the piece began
  uint32_t units;
};

// Moves payloads to where they are stored. Layout stride: those that fit go to slots, and the others to entries, end to
// end, of one unit each. Layout packed: all of them end to end.
struct PlaceArguments {
  const char* payloads;
  uint32_t payload_pitch;
  uint32_t count;
  const uint32_t* lengths;
  uint32_t slot_bytes;      // a multiple of 16; 0: layout packed
  uint32_t unit_bytes;      // a multiple of 16: what is stored end to end begins at multiples of it
  uint32_t warps_per_tile;  // 1 to 32
  uint32_t* tile_units;     // one for every 32 rows: their units, then those of the rows before
  uint32_t* piece_units;    // stored end to end since the piece began
  PackedRun* run;
  char* slots;
  char* packed;
  // Layout packed: of each row, the units of the piece up to its end. Layout stride: of each entry, its row in the
  // piece, in which the call's first row is first_row.
  uint32_t* numbers;
  uint32_t first_row;
};

// Copies what was stored end to end to host memory.
struct CopyOutArguments {
  const PackedRun* run;
  uint32_t unit_bytes;
  const char* packed;
  const uint32_t* rows;  // layout stride: of the entries; NULL: layout packed
  // Mapped host memory.
  char* to;            // where the piece begins; 16-byte aligned
  uint32_t* rows_to;   // the same for the entries' rows
  uint32_t* units_to;  // units of the piece until now
};

inline constexpr uint32_t encode_warps = 8;     // of a CTA
inline constexpr uint32_t short_row_lanes = 4;  // that encode a short row
inline constexpr uint32_t rows_per_tile = 32;   // whose places a warp finds

}  // namespace narrowcast::store::cuda
