// Encoding and decoding on the GPU. Every call is asynchronous on the caller's stream, allocates nothing, reads nothing
// back to the host, and may be captured in a CUDA graph. Pointers and stream must belong to the current device. The
// frames are identical to those of codec.h.
#ifndef NARROWCAST_CUDA_H_
#define NARROWCAST_CUDA_H_

#include "narrowcast/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

// The result of decoding on the GPU: a word in device memory, which the caller sets to NCAST_OK before the call. The
// decoder stores NCAST_CORRUPT there if the data is corrupt; the values are then unspecified.
typedef uint32_t ncast_device_status;

// Options of a call. NULL or zeros mean the defaults.
typedef struct {
  uint32_t max_ctas;  // maximum number of CTAs, each on its own SM if there are enough; 0: as many as run concurrently
} ncast_cuda_options;

// The number of GPUs that CUDA can use. 0 on a machine without a driver.
NCAST_API int ncast_cuda_device_count(void);

// The GPU architectures that the library contains code for, as CMake names them: "80-real,90". GPUs of other
// architectures cannot run it, except those that are newer than one without "-real". "" if it was built without CUDA.
NCAST_API const char* ncast_cuda_architectures(void);

// The bytes of workspace that ncast_cuda_encode needs. May be 0.
NCAST_API size_t ncast_cuda_workspace_bytes(ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// Encodes values in device memory into one frame, packed end to end, in one pass over the values.
//   values: aligned to the value type; 16-byte alignment is fastest.
//   frame: device memory, 16-byte aligned, capacity >= ncast_bound().
//   flags: NCAST_MORE, NCAST_NO_CHECKSUM. Frames that a GPU encodes have no checksum.
//   workspace: device memory, 16-byte aligned, of at least ncast_cuda_workspace_bytes(). Its content does not matter.
//     Calls in flight must not share it.
// The size of the frame stays on the device: it is the 64-bit word at byte 16 of the frame.
NCAST_API ncast_status ncast_cuda_encode(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec,
                                         uint32_t flags, void* frame, size_t capacity, void* workspace,
                                         size_t workspace_bytes, const ncast_cuda_options* options,
                                         ncast_stream stream);

// Decodes a frame in device memory. If it does not contain `elems` values of `dtype` encoded with `codec`, *status
// becomes NCAST_CORRUPT. Checksums are not verified.
//   frame: 16-byte aligned; frame_bytes are readable.
//   values: device memory for elems values, aligned to the value type; 16-byte alignment is fastest.
NCAST_API ncast_status ncast_cuda_decode(const void* frame, size_t frame_bytes, ncast_dtype dtype, ncast_codec codec,
                                         uint64_t elems, void* values, ncast_device_status* status,
                                         const ncast_cuda_options* options, ncast_stream stream);

// Decodes a frame and reduces it into an accumulator: accumulator[i] = op(accumulator[i], value[i]).
//   accumulator: device memory for elems floats (doubles for NCAST_FLOAT64; values of dtype for integers), aligned to
//     that type.
//   op: NCAST_SUM, NCAST_PROD, NCAST_MIN or NCAST_MAX.
NCAST_API ncast_status ncast_cuda_decode_reduce(const void* frame, size_t frame_bytes, ncast_dtype dtype,
                                                ncast_codec codec, uint64_t elems, ncast_redop op, void* accumulator,
                                                ncast_device_status* status, const ncast_cuda_options* options,
                                                ncast_stream stream);

// Encodes `count` arrays of values into a frame each, with two kernels however many there are. All arrays of arguments
// and results are in device memory, and are read when the stream reaches the call. Array i has elems[i] values of
// dtypes[i] at values[i], and its frame has capacities[i] bytes at frames[i]; both as for ncast_cuda_encode. The arrays
// may differ in type and size. wire_bytes[i] receives the size of the frame, and statuses[i]
//   NCAST_OK
//   NCAST_INVALID_ARGUMENT  dtype, elems, or the alignment of a pointer
//   NCAST_TOO_SMALL         capacities[i] < ncast_bound(), or the workspace is too small for all values together
// An array with an error has a wire_bytes of 0; the others are encoded.
//   workspace: device memory, 16-byte aligned, of at least ncast_cuda_encode_batch_workspace_bytes() for the raw bytes
//     of all arrays together. Its content does not matter. Calls in flight must not share it.
NCAST_API ncast_status ncast_cuda_encode_batch(size_t count, const void* const* values, const ncast_dtype* dtypes,
                                               const uint64_t* elems, ncast_codec codec, uint32_t flags,
                                               void* const* frames, const size_t* capacities, size_t* wire_bytes,
                                               ncast_device_status* statuses, void* workspace, size_t workspace_bytes,
                                               const ncast_cuda_options* options, ncast_stream stream);
// 0 if an argument is not valid. raw_bytes: of all arrays together, or an upper bound.
NCAST_API size_t ncast_cuda_encode_batch_workspace_bytes(size_t count, uint64_t raw_bytes, ncast_codec codec);

// Decodes `count` frames, with two kernels: frame i, of frame_bytes[i] readable bytes at frames[i] (16-byte aligned),
// to values[i], which has room for value_capacities[i] bytes and is aligned to the frame's value type. All arrays are
// in device memory, and are read when the stream reaches the call. The headers of the frames tell their types and
// sizes. Checksums are not verified. value_bytes[i] receives the size of the values, and statuses[i]
//   NCAST_OK
//   NCAST_CORRUPT           the frame is corrupt, or encoded with another codec than `codec` or raw
//   NCAST_TOO_SMALL         the values do not fit into value_capacities[i]
//   NCAST_INVALID_ARGUMENT  the alignment of a pointer
// A frame with an error has a value_bytes of 0, and its values are unspecified; the others are decoded.
//   workspace: as for ncast_cuda_encode_batch, of at least ncast_cuda_decode_batch_workspace_bytes().
NCAST_API ncast_status ncast_cuda_decode_batch(size_t count, const void* const* frames, const size_t* frame_bytes,
                                               ncast_codec codec, void* const* values, const size_t* value_capacities,
                                               size_t* value_bytes, ncast_device_status* statuses, void* workspace,
                                               size_t workspace_bytes, const ncast_cuda_options* options,
                                               ncast_stream stream);
// 0 if count is not valid.
NCAST_API size_t ncast_cuda_decode_batch_workspace_bytes(size_t count);

// Copies rows of pages to where each page belongs, with one kernel: blocks of a KV cache that were decoded end to end,
// for example. Page p of row i has the bytes offsets[p] to offsets[p + 1] of the row, which begins at
// rows + i * offsets[page_count], and goes to pages[p] + numbers[i] * strides[p]. All arrays are in device memory, and
// are read when the stream reaches the call: `page_count` pages and strides, one more offset, `row_count` numbers. Any
// alignment is possible; 16 bytes are fastest.
NCAST_API ncast_status ncast_cuda_scatter_pages(size_t row_count, const void* rows, const uint64_t* numbers,
                                                size_t page_count, void* const* pages, const uint64_t* strides,
                                                const uint64_t* offsets, const ncast_cuda_options* options,
                                                ncast_stream stream);

// Slots, the layout of staging buffers: the payload of block i is at slots + i * ncast_slot_bytes(), and its length in
// bytes is lengths[i]. No workspace is needed. Both functions return 0 if an argument is not valid.
NCAST_API size_t ncast_slot_bytes(ncast_dtype dtype, ncast_codec codec);
NCAST_API uint64_t ncast_slot_count(ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// As ncast_cuda_encode, into ncast_slot_count() slots (16-byte aligned) and the same number of lengths, all in device
// memory.
NCAST_API ncast_status ncast_cuda_encode_slots(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec,
                                               void* slots, uint32_t* lengths, const ncast_cuda_options* options,
                                               ncast_stream stream);
// As ncast_cuda_decode, from slots that were encoded with `codec`.
NCAST_API ncast_status ncast_cuda_decode_slots(const void* slots, const uint32_t* lengths, ncast_dtype dtype,
                                               ncast_codec codec, uint64_t elems, void* values,
                                               ncast_device_status* status, const ncast_cuda_options* options,
                                               ncast_stream stream);
// As ncast_cuda_decode_reduce, from slots that were encoded with `codec`.
NCAST_API ncast_status ncast_cuda_decode_reduce_slots(const void* slots, const uint32_t* lengths, ncast_dtype dtype,
                                                      ncast_codec codec, uint64_t elems, ncast_redop op,
                                                      void* accumulator, ncast_device_status* status,
                                                      const ncast_cuda_options* options, ncast_stream stream);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_CUDA_H_
