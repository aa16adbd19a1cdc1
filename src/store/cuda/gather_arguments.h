// The arguments of the gather kernels: plain structs, shared by host and device code.
#pragma once

#include <cstdint>

namespace narrowcast::store::cuda {

inline constexpr uint32_t line_bytes = 128;  // of caches, and of requests to host memory
// Lanes of a tile, at most, if payloads are only a zero map: as many as store a line. A step takes as long as that of
// longer payloads, so it should have several rows.
inline constexpr uint32_t fill_lanes = line_bytes / 16;

// What the rows of a table are, decoded.
struct RowFormat {
  uint32_t elems;  // invariant: chunks
  uint32_t elem_bytes;
  uint32_t row_bytes;
  // The stages in front of the coder. An element is part << shift | fill, where part is what the coder decodes.
  // `invariant` undoes them itself.
  uint32_t has_zeros;
  uint32_t has_trim;
  uint32_t shift;
  uint64_t fill;
};

// The parameters of the coder.
struct CoderFormat {
  uint32_t tail_bytes;    // window: bytes of an element below its head that are stored
  uint32_t low_bits;      // window: removed by the trim
  uint32_t part_bits;     // plain: bits of an element
  uint32_t chunk_bytes;   // invariant
  uint32_t clusters;      // invariant
  uint32_t cluster_bits;  // invariant
  const void* masks;      // invariant: as long as a row, one for each cluster; in device memory
  const void* values;
  uint64_t trimmed_bits;    // invariant: in eight bytes, the bits that the trim removes
  uint64_t trimmed_values;  // their values
};

// Where the payloads of a table are. The memory of the host is mapped.
struct RowPlaces {
  const char* slots;        // 128-byte aligned; readable to the next multiple of 16 after the last payload
  uint64_t stride;          // of the slots; 0 if `offsets` say where payloads begin
  uint32_t is_staged;       // the slots are copies in device memory, where those of a step lie as in a stage
  const uint32_t* offsets;  // device memory: in units of unit_bytes, one more than there are rows
  uint32_t unit_bytes;
  const uint32_t* headers;  // coder raw: one word per row, which is a redirect or 0
  const char* entries;      // 16-byte aligned
  uint64_t entry_stride;    // a multiple of 16
  uint32_t entry_count;
};

// What a call sees of a table that may be written meanwhile.
struct TableState {
  uint64_t row_count;      // rows with higher numbers do not exist (yet)
  uint32_t has_redirects;  // coder raw: some headers are not 0
};

// The words of a table that a call looks at when it starts; in mapped host memory.
struct TableWords {
  const uint64_t* row_count;
  const uint32_t* redirects;  // coder raw: whether any row has a redirect; NULL otherwise
  uint64_t known_rows;        // more rows than these are not read: their offsets are not in device memory
};

// A row to be read, as one word: its number in the table above its position in the output. Tables with a cache have
// less than 2^31 rows; there, numbers from cached_row on are ways of the cache.
constexpr uint64_t entry_of(uint32_t number, uint32_t position) { return uint64_t{number} << 32 | position; }
constexpr uint32_t entry_number(uint64_t entry) { return static_cast<uint32_t>(entry >> 32); }
constexpr uint32_t entry_position(uint64_t entry) { return static_cast<uint32_t>(entry); }
inline constexpr uint32_t cached_row = 1u << 31;
inline constexpr uint32_t no_row = ~0u;  // as a number: out of range; as a position: there is nothing to be read
inline constexpr uint64_t no_entry = entry_of(no_row, no_row);

// Rows in a cache. All of it in device memory.
struct CachedRows {
  const char* slots;    // NULL: there is no cache
  uint32_t slot_bytes;  // not more than GatherShape::slot_bytes, and those of the table
  uint32_t ways;
  uint32_t unit_bytes;  // 16, 4 or 1: divides slot_bytes, and the addresses of payloads of the table
  int32_t* rows;        // by way; -1: none
  // As in TableState, but not older than the changes of which the cache knows: payloads that are copied to it must not
  // be those of before these changes.
  const uint32_t* has_redirects;
  const int32_t* fill_ways;  // by position, for rows of the table: the way that the payload is copied to, or -1
  // Those that cannot be decoded are appended, to be read from the table.
  uint64_t* retries;
  uint32_t* retry_count;
};

// Which rows a call reads, and where they go.
struct Selection {
  const void* indices;      // device memory; NULL: row i is first + i * step
  uint32_t index_bytes;     // 4 or 8; signed
  const uint64_t* entries;  // device memory: the same rows in the order in which to read them; NULL: as they are
  uint64_t first;
  int64_t step;
  uint64_t count;                // less than 2^32
  const uint32_t* device_count;  // device memory: the count, if it is lower; NULL: `count`
  char* out;
  uint64_t out_stride;  // in bytes
  // The largest power of two up to 16 that divides out, out_stride, the size of a row, and the stride of uncoded rows.
  uint32_t unit_bytes;
  CachedRows cached;
};

// Sums over the calls of a stream context; in device memory.
struct GatherCounters {
  unsigned long long rows, fetched_bytes, redirected_rows, bad_indices, corrupt_rows;
};

// Tells the writer which calls are reading: docs/format/table.md.
struct CallWords {    // all NULL if the table is never written
  uint64_t* started;  // host memory
  uint64_t* finished;
  const TableState* state;    // device memory: what the call sees; written when it starts
  unsigned long long* calls;  // device memory: calls started so far
  uint32_t* ended_ctas;       // device memory, 0 between calls
};

// How a CTA uses its shared memory.
struct GatherShape {
  uint32_t tile_lanes;     // lanes for a row: a power of two
  uint32_t rows;           // of a step: tiles of a warp
  uint32_t has_lane_rows;  // rows and slots have 64 bytes, slots are at multiples of 64, and a tile is a lane
  uint32_t slot_bytes;     // fetched ahead for each row; a multiple of 16
  uint32_t slot_lines;     // the most 128-byte lines that they touch
  uint32_t slot_area;      // shared memory of a slot
  uint32_t records_at;     // where the records of a stage's rows are
  uint32_t stage_bytes;    // shared memory of a stage; its last 8 bytes are a barrier of bulk loads
  uint32_t stages;         // 2 to max_stages: steps that are fetched ahead, the current one included
  uint32_t spare_rows;     // redirected or long rows that are fetched at a time; 0: one, into the only slot of a step
  uint32_t spare_area;     // shared memory of one of them
  uint32_t staged_area;    // shared memory of a row's piece of decoded elements; 0: they are not staged
  uint32_t staged_bytes;   // of all of them, for each warp
  uint32_t team_warps;     // warps that decode a row together; more than one only if tile_lanes is 32
  uint32_t sums_bytes;     // shared memory of a team for its sums
  uint32_t team_bytes;     // shared memory of a team
  uint32_t warps;          // of a CTA: a multiple of team_warps
};

inline constexpr uint32_t max_stages = 8;

// Shared memory of a CTA: the number of batches that its teams have taken, and the memory of the teams.
inline constexpr uint32_t taken_bytes = line_bytes;
constexpr uint32_t cta_bytes(const GatherShape& shape) {
  return taken_bytes + shape.warps / shape.team_warps * shape.team_bytes;
}

struct GatherArguments {
  RowFormat format;
  CoderFormat coder;
  RowPlaces places;
  TableState state;  // if it never changes
  Selection selection;
  CallWords reader;
  GatherCounters* counters;
  GatherShape shape;
};

}  // namespace narrowcast::store::cuda
