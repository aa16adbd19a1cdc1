// Encode and decode on the GPU. Every call is asynchronous on the caller's stream, allocates nothing, reads nothing
// back to the host, and may be captured in a CUDA graph. Pointers and stream belong to the current device. The frames
// are those of codec.h, byte for byte.
#ifndef NARROWCAST_CUDA_H_
#define NARROWCAST_CUDA_H_

#include "narrowcast/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

// The result of decoding on the GPU: a word in device memory that the caller sets to NCAST_OK. A decoder stores
// NCAST_CORRUPT there if the data is corrupt; the values are then unspecified.
typedef uint32_t ncast_device_status;

// How a call runs; NULL or zeros mean the defaults.
typedef struct {
  uint32_t max_ctas;  // at most this many CTAs, one per SM where they fit; 0: as many as the GPU runs at once
} ncast_cuda_options;

// GPUs that CUDA can use; 0 on a machine without a driver.
NCAST_API int ncast_cuda_device_count(void);

// Bytes of workspace that ncast_cuda_encode needs; 0 if it needs none.
NCAST_API size_t ncast_cuda_workspace_bytes(ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// Encodes values in device memory into one frame, packed end to end, in one pass over the values.
//   values: aligned to the value type; 16-byte alignment is fastest.
//   frame: device memory, 16-byte aligned, capacity >= ncast_bound().
//   flags: 0 or NCAST_MORE (checksums are for the host).
//   workspace: device memory, 16-byte aligned, >= ncast_cuda_workspace_bytes(), with any content; not shared with a
//     call in flight.
// The size stays on the device: the frame's wire_bytes is the 64-bit word at byte 16 of the frame.
NCAST_API ncast_status ncast_cuda_encode(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec,
                                         uint32_t flags, void* frame, size_t capacity, void* workspace,
                                         size_t workspace_bytes, const ncast_cuda_options* options,
                                         ncast_stream stream);

// Decodes a frame in device memory that should hold `elems` values of `dtype`, encoded with `codec`; anything else
// stores NCAST_CORRUPT in *status. Checksums are not verified; only the host does that.
//   frame: 16-byte aligned; frame_bytes are readable.
//   values: device memory for elems values, aligned to the value type; 16-byte alignment is fastest.
NCAST_API ncast_status ncast_cuda_decode(const void* frame, size_t frame_bytes, ncast_dtype dtype, ncast_codec codec,
                                         uint64_t elems, void* values, ncast_device_status* status,
                                         const ncast_cuda_options* options, ncast_stream stream);

// Decodes a frame and reduces it into an accumulator: accumulator[i] = op(accumulator[i], value[i]).
//   accumulator: elems floats (doubles for NCAST_FLOAT64; values of dtype for integers), aligned to these.
//   op: NCAST_SUM, NCAST_PROD, NCAST_MIN or NCAST_MAX.
NCAST_API ncast_status ncast_cuda_decode_reduce(const void* frame, size_t frame_bytes, ncast_dtype dtype,
                                                ncast_codec codec, uint64_t elems, ncast_redop op, void* accumulator,
                                                ncast_device_status* status, const ncast_cuda_options* options,
                                                ncast_stream stream);

// Slots: block i at slots + i * ncast_slot_bytes(), the length of its payload in bytes at lengths[i]. No scan, no
// workspace: the layout of staging buffers. Both return 0 if an argument is not valid.
NCAST_API size_t ncast_slot_bytes(ncast_dtype dtype, ncast_codec codec);
NCAST_API uint64_t ncast_slot_count(ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// As ncast_cuda_encode, into ncast_slot_count() slots (16-byte aligned) and as many lengths (device memory).
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
