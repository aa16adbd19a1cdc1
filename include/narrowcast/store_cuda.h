// Reading an open store on the GPU. Rows are fetched from host memory by the GPU itself, still encoded, and decoded on
// the way; slices are copied by the copy engine and decoded. Calls are asynchronous on the caller's stream and allocate
// nothing. Pointers and streams must belong to the current device, which must be that of the reader.
// docs/guide/store.md shows how to use it.
#ifndef NARROWCAST_STORE_CUDA_H_
#define NARROWCAST_STORE_CUDA_H_

#include "narrowcast/store.h"

#ifdef __cplusplus
extern "C" {
#endif

// Reads a store on one GPU. Its calls must follow each other: on one stream, or on streams that the caller orders. Any
// number of readers, in any process, may read a store at the same time, while it is changed.
typedef struct ncast_store_reader ncast_store_reader;

// Set struct_bytes to sizeof(ncast_store_reader_options) and the other members that are not needed to 0; later versions
// append members.
typedef struct {
  size_t struct_bytes;
  uint64_t max_rows;  // gathers of more rows run in pieces of this many, less than 2^32; 0: 65536
  uint32_t sms;       // SMs that a call uses at most; 0: 4
} ncast_store_reader_options;

// Allocates the GPU memory of a reader on the current device. The first reader of a store registers the store's memory
// with CUDA, which stays registered until the store is closed; with NCAST_STORE_MMAP it also verifies the whole file.
//   options: may be NULL.
//   reader: destroy it with ncast_store_reader_destroy, before the store is closed.
// Errors: CUDA_ERROR, also if there is no GPU or the memory cannot be registered; CORRUPT if the store was opened with
// damage; TOO_SMALL if the store has 1024 readers already; UNSUPPORTED if no kernel decodes the table's codec, or if
// this GPU has too little shared memory for a row.
NCAST_API ncast_status ncast_store_reader_create(ncast_store* store, const ncast_store_reader_options* options,
                                                 ncast_store_reader** reader);

// NULL is allowed. Waits for the calls of the reader. Graphs that were captured from them must not run any more.
NCAST_API void ncast_store_reader_destroy(ncast_store_reader* reader);

enum {
  NCAST_STORE_HOST_INDICES = 1u,  // of a gather: the indices are in host memory. They are checked, and copied
  NCAST_STORE_INDEX_ORDER = 2u    // of a gather: rows are read in the order of the indices, not sorted by page before.
                                  // Faster if the indices ascend
};

// Options of a call. Set struct_bytes to sizeof(ncast_store_read_options) and the other members that are not needed
// to 0; later versions append members.
typedef struct {
  size_t struct_bytes;
  uint32_t sms;    // SMs that the call uses at most; 0: those of the reader
  uint32_t flags;  // NCAST_STORE_HOST_INDICES, NCAST_STORE_INDEX_ORDER
} ncast_store_read_options;

// Decodes rows indices[0] to indices[count - 1] to out, out_stride bytes from one to the next.
//   indices: GPU memory, aligned; signed integers of index_bytes bytes each, 4 or 8; duplicates are allowed. An index
//     without a row yields zeros and is counted: ncast_store_reader_check reports it.
//   out: GPU memory, aligned to a value; a multiple of 16 is fastest. out_stride: a multiple of a value.
//   options: may be NULL.
// The call can be captured in a CUDA graph, except with indices in host memory. Replays read the table as it is then;
// of the layout packed, the rows that existed when the call was captured.
// Errors: INVALID_ARGUMENT, for indices in host memory also if one has no row. UNSUPPORTED for the layout blocks unless
// indices are in host memory.
NCAST_API ncast_status ncast_store_reader_gather(ncast_store_reader* reader, const void* indices, size_t index_bytes,
                                                 uint64_t count, void* out, uint64_t out_stride,
                                                 const ncast_store_read_options* options, ncast_stream stream);

// Decodes rows first, first + step, ..., `count` of them. All of them must exist. step may be negative. Further
// arguments and errors as above.
NCAST_API ncast_status ncast_store_reader_fetch(ncast_store_reader* reader, uint64_t first, uint64_t count,
                                                int64_t step, void* out, uint64_t out_stride,
                                                const ncast_store_read_options* options, ncast_stream stream);

// Sums over the calls of a reader. Set struct_bytes to sizeof(ncast_store_reader_counters) before the call; later
// versions append members.
typedef struct {
  size_t struct_bytes;
  uint64_t gathers, fetches;    // calls; a captured one counts once
  uint64_t rows_read;           // without those in damaged frames
  uint64_t fetched_bytes;       // read from host memory, still encoded
  uint64_t overflow_rows_read;  // rows that were read from overflow entries
  uint64_t bad_indices;         // indices without a row
  uint64_t damaged_rows_read;   // rows that could not be decoded; layout blocks: frames
} ncast_store_reader_counters;

// Waits for `stream`, on which the reader's calls were made, and returns the counters.
NCAST_API ncast_status ncast_store_reader_get_counters(ncast_store_reader* reader,
                                                       ncast_store_reader_counters* counters, ncast_stream stream);

// Waits for `stream` and reports what the reader's calls have found since the last check.
// Errors: INVALID_ARGUMENT if indices had no row; CORRUPT if rows could not be decoded. The message has their number.
NCAST_API ncast_status ncast_store_reader_check(ncast_store_reader* reader, ncast_stream stream);

// --- Building
// ----------------------------------------------------------------------------------------------------------

// Has GPU `device` encode the rows of a builder; the file has the same bytes. ncast_store_builder_sample and
// ncast_store_builder_add then also take rows in GPU memory, which must be complete when they are called. Rows in host
// memory should be page-locked (cudaHostAlloc, cudaHostRegister): the driver copies others on one CPU first. The codec
// is fitted on the CPU. With the layout blocks and the codec raw, rows are copied from the GPU and encoded on the CPU.
// Call it at most once, before the first rows. ncast_store_builder_add returns when the GPU has read the rows, and may
// report an error of rows that were added before. While the builder exists, it takes about 80 MB of GPU memory and 280
// MB of page-locked memory (340 and 540 MB for the longest rows); more if payloads of the layout packed begin at large
// units (ncast_store_build_options.rows).
// Errors: INVALID_ARGUMENT; CUDA_ERROR, also if there is no such GPU.
NCAST_API ncast_status ncast_store_builder_set_device(ncast_store_builder* builder, int device);

// --- A cache in GPU memory

typedef enum {
  NCAST_STORE_CACHE_STATIC = 0,  // rows stay until they are updated; free places go to rows that are gathered
  NCAST_STORE_CACHE_LRU = 1      // gathered rows replace those that were not gathered for the longest time
} ncast_store_cache_policy;

// Set struct_bytes to sizeof(ncast_store_cache_options) and the other members that are not needed to 0; later versions
// append members.
typedef struct {
  size_t struct_bytes;
  ncast_store_cache_policy policy;
  uint32_t index_bytes;  // of an element of warm_rows: 4 or 8
  uint64_t bytes;        // of GPU memory, at most
  uint64_t rows;         // instead of bytes: room for at least this many rows
  // Rows to begin with, in host memory, those that matter most first. NULL: none; with STATIC, rows 0, 1, 2, ...
  const void* warm_rows;
  uint64_t warm_count;
} ncast_store_cache_options;

// Makes gathers of a reader keep rows in GPU memory, encoded as in the table. Replaces the reader's cache, if any.
// Rows that have been updated are read again. Waits for `stream`, on which the reader's calls are made. Graphs that
// were captured before must not run any more.
// While the call runs, the GPU has memory for both caches: to replace one that takes most of it, remove it first.
//   options: NULL: only remove the cache.
// Errors: UNSUPPORTED for the layout blocks, and for 2^31 or more rows. TOO_SMALL if there is no room for 16 rows.
// CUDA_ERROR. After an error the reader has the cache that it had before.
NCAST_API ncast_status ncast_store_reader_set_cache(ncast_store_reader* reader,
                                                    const ncast_store_cache_options* options, ncast_stream stream);

// The cache of a reader, and the sums over its calls. Set struct_bytes to sizeof(ncast_store_cache_info) before the
// call; later versions append members.
typedef struct {
  size_t struct_bytes;
  uint64_t bytes;       // of GPU memory that rows, and what finds them, take; 0: there is no cache
  uint64_t slot_bytes;  // of a row in the cache
  uint64_t capacity;    // rows that fit
  uint64_t rows;        // in the cache now
  uint64_t hits;        // gathered rows that were in the cache
  uint64_t misses;      // gathered rows that were not
  uint64_t fills;       // rows that were put into the cache
  uint64_t evictions;   // rows that made room for others
  uint64_t dropped;     // rows that had been updated
  uint64_t overflows;   // hits that did not serve: the encoded row was longer than slot_bytes, or in an overflow entry
} ncast_store_cache_info;

// Waits for `stream`, on which the reader's calls were made.
NCAST_API ncast_status ncast_store_reader_get_cache(ncast_store_reader* reader, ncast_store_cache_info* info,
                                                    ncast_stream stream);

#ifdef __cplusplus
}
#endif

#endif  // NARROWCAST_STORE_CUDA_H_
