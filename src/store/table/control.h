// The shared words of a table in memory, and where its parts are. Plain structs, which kernels use too.
//
// Readers and writers of one table, in any process, agree through these words:
//   - A reader stores started = n, with a full fence after it, before it reads the first row of a call, and
//     finished = n after the last one. n counts up. Nobody else writes these words while the reader lives.
//   - A writer changes what a row's word refers to, with a full fence after it, and then waits until every reader that
//     was inside a call has left it: a grace period. Only then does it reuse what the word referred to before.
//   - Before it waits, it notes the row among the changes, so that readers that keep copies of rows drop this one.
// docs/design/store.md has the argument why a reader never sees a mix of two rows.
#pragma once

#include <cstdint>

namespace narrowcast::store {

inline constexpr uint32_t max_readers = 1024;

// The words of a reader, in a cache line of its own.
struct alignas(64) ReaderWords {
  uint64_t started;
  uint64_t finished;
  uint64_t owner;  // 0: free; otherwise the process, see Readers
};

struct alignas(64) ControlWords {
  uint64_t rows;          // number of rows that readers may read
  uint32_t any_redirect;  // uncoded tables: 0 as long as no word of `row_words` refers to an overflow entry
  uint32_t reserved;
  uint64_t entries_used;  // overflow entries that are not free
  uint64_t unclean;       // not 0: entries may need to be reclaimed
  uint64_t changes;       // number of changes so far
};

// Change number n, counted from 0, is of row changed_rows[n % changes_kept], which is stored before `changes` becomes
// n + 1. Whoever has read the entries of changes [n, m) must then load `changes` again: if it is n + changes_kept or
// more, some of the entries were of later changes, and any row may have changed.
inline constexpr uint64_t changes_kept = 16384;

enum class Layout : uint8_t { stride = 1, packed = 2, blocks = 3 };

// The parts of an open table. Pointers are valid in this process. Every part starts at a multiple of 128 bytes (in the
// memory of stores that can be changed) and is followed by at least 128 readable bytes.
struct TableView {
  uint8_t* memory;        // the whole mapped range, page aligned
  uint64_t memory_bytes;  // of the range
  ControlWords* control;
  ReaderWords* readers;  // max_readers of them

  Layout layout;
  bool uncoded;            // rows are stored as they are: slots and overflow entries have no header word
  uint64_t row_bytes;      // of a decoded row
  uint64_t capacity;       // rows for which there is space
  uint8_t* data;           // slots, payloads or frames
  uint64_t data_bytes;     // of the part
  uint64_t stride;         // layout stride: bytes from one slot to the next
  uint32_t* offsets;       // layout packed: capacity + 1 offsets of payloads, in units
  uint32_t unit;           // layout packed: bytes of a unit
  uint64_t* changed_rows;  // changes_kept of them; NULL if the table is read-only
  uint32_t* row_words;     // uncoded tables with overflow entries: a word per row, 0 or a redirect; otherwise NULL
  uint8_t* entries;        // overflow entries
  uint64_t entry_stride;   // bytes from one entry to the next
  uint64_t entry_count;    // used and free
  uint64_t usual_bytes;    // layout packed: payload bytes that 99% of the rows do not exceed
};

}  // namespace narrowcast::store
