// The store: tables of rows in host memory or in files, encoded row by row. docs/guide/store.md shows how to use it,
// docs/format/table.md specifies the file, and docs/design/store.md explains updates under readers.
#ifndef NARROWCAST_STORE_H_
#define NARROWCAST_STORE_H_

#include "narrowcast/text.h"
#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// How the rows of a table are placed.
typedef enum {
  NCAST_STORE_AUTO_LAYOUT = 0,  // the library chooses
  NCAST_STORE_STRIDE = 1,       // slots of equal size, exceptions in overflow entries
  NCAST_STORE_PACKED = 2,       // payloads end to end, with an offset per row; not with the codec raw
  NCAST_STORE_BLOCKS = 3        // frames of the flattened tensor, for slices and for rows over 64 KiB; read-only
} ncast_store_layout;

// Where an open store is.
typedef enum {
  NCAST_STORE_PINNED = 0,  // in memory of this process
  NCAST_STORE_MMAP = 1,    // in the pages of the file; read-only
  NCAST_STORE_SHARED = 2   // in shared memory, one copy for all processes that open the file
} ncast_store_host;

enum { NCAST_STORE_MAX_ROW_RANK = 7 };

// --- Building
// ----------------------------------------------------------------------------------------------------------

// Writes a table file. One thread at a time may use it.
typedef struct ncast_store_builder ncast_store_builder;

// What to build. Set struct_bytes to sizeof(ncast_store_build_options) and the other members that are not needed to 0;
// later versions append members.
typedef struct {
  size_t struct_bytes;
  ncast_dtype dtype;
  ncast_store_layout layout;
  uint32_t row_rank;  // number of extents in row_shape; 0: a row is one value
  uint64_t row_shape[NCAST_STORE_MAX_ROW_RANK];
  uint64_t capacity;  // rows for which an open store reserves space, for ncast_store_append; 0: those added
  int64_t spare;      // free overflow entries of an open store, for ncast_store_update; -1: the library chooses
  uint64_t rows;      // rows that will be added, if known; otherwise 0. Only a hint
  const char* codec;  // a row codec such as "window" or "trim+window", or "auto"; NULL: "auto". With NCAST_STORE_BLOCKS
                      // the text of an ncast_codec
  const char* metadata;  // any UTF-8 text that is stored in the file; may be NULL
  int threads;           // that encode at the same time; 0: as many as CPUs that this thread may use
} ncast_store_build_options;

// Begins to write a table to `file`, a descriptor of an empty regular file that is open for writing. The caller keeps
// the descriptor and gives the file its name after ncast_store_builder_finish: until then it is not a valid table.
//   builder: destroy it with ncast_store_builder_destroy.
// Errors: INVALID_ARGUMENT, SYSTEM_ERROR.
NCAST_API ncast_status ncast_store_builder_create(int file, const ncast_store_build_options* options,
                                                  ncast_store_builder** builder);

// Fits the codec and the layout to sample rows, which should be spread over the table; all of them are used. Without
// this call, they are fitted to the first rows that are added. Call it at most once, before ncast_store_builder_add.
//   rows: `count` rows, row_stride bytes from one to the next; any alignment.
NCAST_API ncast_status ncast_store_builder_sample(ncast_store_builder* builder, const void* rows, uint64_t row_stride,
                                                  uint64_t count);

// Encodes and writes the next rows. Arguments as above. The rows are not used after the call.
NCAST_API ncast_status ncast_store_builder_add(ncast_store_builder* builder, const void* rows, uint64_t row_stride,
                                               uint64_t count);

// Completes the file and waits until it is on the disk.
//   report: may be NULL. A JSON object: codec, layout, rows, raw_bytes, file_bytes, stored_bytes (without header and
//           model), stride, overflow_rows, and fit: how codec and layout were chosen. Destroy it with
//           ncast_text_destroy.
NCAST_API ncast_status ncast_store_builder_finish(ncast_store_builder* builder, ncast_text** report);

// NULL is allowed. Without ncast_store_builder_finish, the content of the file is unspecified.
NCAST_API void ncast_store_builder_destroy(ncast_store_builder* builder);

// --- Opening
// -----------------------------------------------------------------------------------------------------------

// An open table. Any number of threads may use it at the same time, except that nothing may run during
// ncast_store_close. Calls that change it run one after another, in all processes.
typedef struct ncast_store ncast_store;

enum {
  NCAST_STORE_ALLOW_DAMAGE = 1u  // open a file with damaged rows: reading these yields CORRUPT, others are unaffected
};

// How to open a table. Set struct_bytes to sizeof(ncast_store_open_options) and the other members that are not needed
// to 0; later versions append members.
typedef struct {
  size_t struct_bytes;
  ncast_store_host host;
  uint32_t flags;          // NCAST_STORE_ALLOW_DAMAGE
  int numa_node_plus_one;  // 1 + the NUMA node on which the memory is allocated; 0: the system chooses. Not with MMAP
  int threads;             // that load the file; 0: as many as CPUs that this thread may use
  uint64_t capacity;       // rows for which space is reserved; 0: what the file says, but for no more additional bytes
                           // than the file has, or 64 MiB
  int64_t spare_plus_one;  // 1 + the number of free overflow entries; 0: what the file says, within the same limit
} ncast_store_open_options;

// Opens a table file. With PINNED and SHARED it is read into memory and its checksums are verified: the file can then
// be replaced or removed. With MMAP it is verified part by part, when a part is first used. It can be replaced or
// removed as well, but should not be changed in place: a call fails with CORRUPT if the size or the header of the file
// has changed, verifies parts again if its time has, and fails if its time changes during the call. Pages that cannot
// be read, because the file was truncated or its disk failed, yield CORRUPT, not SIGBUS: a handler of that signal is
// set while calls that read such a file run, and passes on signals for other memory.
// PINNED is plain memory until a reader on a GPU (store_cuda.h) registers it with CUDA.
// SHARED: processes of one user that open the same, unchanged file use the same memory, at most 64 of them. The memory,
//   with all updates, is released when the last process closes the store, or when a table is loaded after the last
//   one was killed. A process that opens the file waits while another one loads it.
//   options: may be NULL: PINNED with the defaults.
//   store: close it with ncast_store_close.
// Errors: CORRUPT; SYSTEM_ERROR; UNSUPPORTED for a version or a codec that the library does not know; TIMEOUT if
// another process that opens or closes the table in shared memory has made no progress for 60 seconds, with its id.
NCAST_API ncast_status ncast_store_open(const char* path, const ncast_store_open_options* options, ncast_store** store);

// NULL is allowed. Changes that were not saved are lost.
NCAST_API void ncast_store_close(ncast_store* store);

// An open table. Set struct_bytes to sizeof(ncast_store_info) before the call; later versions append members.
typedef struct {
  size_t struct_bytes;
  ncast_dtype dtype;
  ncast_store_layout layout;
  ncast_store_host host;
  uint32_t row_rank;
  uint64_t row_shape[NCAST_STORE_MAX_ROW_RANK];
  uint64_t rows;          // at this time; ncast_store_append adds to it
  uint64_t capacity;      // rows for which there is space
  uint64_t row_bytes;     // of a decoded row
  uint64_t stride;        // layout stride: bytes from one slot to the next; otherwise 0
  uint64_t entry_stride;  // bytes of an overflow entry; 0 with layout blocks
  uint64_t entries;       // overflow entries
  uint64_t free_entries;  // those that no row uses
  uint64_t stored_bytes;  // of rows, offsets and used overflow entries: compare with rows * row_bytes
  uint64_t memory_bytes;  // mapped by the store, including reserved space
} ncast_store_info;
NCAST_API ncast_status ncast_store_describe(const ncast_store* store, ncast_store_info* info);

// The codec of the rows, such as "trim+window". Destroy the text with ncast_text_destroy.
NCAST_API ncast_status ncast_store_codec(const ncast_store* store, ncast_text** codec);
// The metadata that the table was built with. Destroy the text with ncast_text_destroy.
NCAST_API ncast_status ncast_store_metadata(const ncast_store* store, ncast_text** metadata);

// What the calls on this handle have done. Set struct_bytes to sizeof(ncast_store_counters) before the call; later
// versions append members.
typedef struct {
  size_t struct_bytes;
  uint64_t gathers, fetches;  // calls
  uint64_t rows_read;
  uint64_t raw_bytes_read;      // of decoded rows
  uint64_t overflow_rows_read;  // rows that were read from overflow entries
  uint64_t damaged_rows_read;   // rows that could not be decoded
  uint64_t updates, appends;    // calls
  uint64_t rows_updated, rows_appended;
  uint64_t grace_waits;  // how often a change waited for readers
} ncast_store_counters;
NCAST_API ncast_status ncast_store_get_counters(const ncast_store* store, ncast_store_counters* counters);

// --- Reading
// -----------------------------------------------------------------------------------------------------------

// Decodes rows indices[0] to indices[count - 1].
//   indices: `count` signed integers of index_bytes bytes each, 4 or 8; duplicates are allowed.
//   out: row i is written to out + i * out_stride; out_stride is at least row_bytes. Any alignment.
//   threads: at most this many; 0: the library chooses by the amount of data.
// Errors: INVALID_ARGUMENT for an index that is negative or not below the number of rows; the message has its position,
// and nothing is written. CORRUPT if rows are damaged: these are zeros in `out`, the others are valid, and the message
// names the first of them; if a mapped file has changed, `out` is unspecified.
NCAST_API ncast_status ncast_store_gather(ncast_store* store, const void* indices, size_t index_bytes, uint64_t count,
                                          void* out, uint64_t out_stride, int threads);

// Decodes rows first, first + step, ..., `count` of them. step may be negative. Further arguments and errors as above.
NCAST_API ncast_status ncast_store_fetch(ncast_store* store, uint64_t first, uint64_t count, int64_t step, void* out,
                                         uint64_t out_stride, int threads);

// --- Changing. Not with MMAP and not with layout blocks (UNSUPPORTED).
// -----------------------------------------------------------------------------------------------------------

// Replaces rows. Readers see the old or the new row, never a mix; different rows may change at different times. If an
// index occurs several times, the last row counts. Arguments as for ncast_store_gather; rows: row_stride bytes from one
// to the next.
// Errors: INVALID_ARGUMENT for a bad index. TOO_SMALL if the overflow entries do not suffice. Both before anything has
// changed. TIMEOUT if a reader has been inside a call for 60 seconds, and ABORTED after an interruption: the message
// says how many rows have changed.
NCAST_API ncast_status ncast_store_update(ncast_store* store, const void* indices, size_t index_bytes, uint64_t count,
                                          const void* rows, uint64_t row_stride, int threads);

// Adds rows behind the last one; readers can read them when the call returns.
//   first: receives the index of the first of them; may be NULL.
// Errors: TOO_SMALL if the capacity or the overflow entries do not suffice; nothing has changed.
NCAST_API ncast_status ncast_store_append(ncast_store* store, const void* rows, uint64_t row_stride, uint64_t count,
                                          uint64_t* first, int threads);

// --- Files
// -------------------------------------------------------------------------------------------------------------

// Writes the table, with all changes, to `file` as ncast_store_builder_create does. Rows can be read and changed
// meanwhile: each row is saved as it was at some time during the call.
// Errors: CORRUPT if rows are damaged; SYSTEM_ERROR.
NCAST_API ncast_status ncast_store_save(ncast_store* store, int file);

// Checks all checksums and decodes all rows.
//   report: may be NULL. A JSON object: rows, damaged_rows, damaged (the first 100 of their indices), faults (texts).
//           Destroy it with ncast_text_destroy.
// Errors: CORRUPT if there is damage; the report is made nevertheless.
NCAST_API ncast_status ncast_store_verify(ncast_store* store, int threads, ncast_text** report);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_STORE_H_
