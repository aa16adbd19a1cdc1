// Codecs of users. A codec is a shared library that exports one function, ncast_user_codec(). It needs this header
// only, and is not linked with Narrowcast. examples/codec/ has one.
//
// Registered codecs work on CPUs: in frames, files and calls of the host backend, if they are named. AUTO and WITHIN do
// not allow them. Calls between GPUs can use those that have a CUDA header: a file beside the library whose name ends
// in .cuh instead of .so. Frames in GPU memory cannot have them; what names one there is UNSUPPORTED.
//
// The CUDA header defines these functions, which a warp calls for a block between two buffers in shared memory, aligned
// to 16 bytes. They produce the bytes of the functions on CPUs, whose contracts they share:
//
//     __device__ uint32_t ncast_user_encode(const ncast_user_block& block, const ncast_user_context& context,
//                                           const void* values, void* payload, int lane);
//     __device__ bool ncast_user_decode(const ncast_user_block& block, const void* payload, uint32_t payload_bytes,
//                                       void* values, int lane);
//     __device__ uint32_t ncast_user_payload_bytes(const ncast_user_block& block);  // if payloads are fixed
//
// lane: 0 to 31, of the calling thread. All lanes call and return the same. The callers synchronize the warp.
// NVRTC compiles the header, in C++20, when the process creates its first communicator between GPUs, and keeps the
// kernels (docs/guide/plans.md). It can include this file and no other one; the integer types of <stdint.h> and the
// functions that CUDA has without headers are known.
#ifndef NARROWCAST_USER_CODEC_H_
#define NARROWCAST_USER_CODEC_H_

#include "narrowcast/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  NCAST_USER_CODEC_VERSION = 1,
  // The ids that users' codecs have. The library never gives them to its own.
  NCAST_FIRST_USER_CODEC = 192,
  NCAST_LAST_USER_CODEC = 253,
  NCAST_MOST_USER_CODECS = 16,  // of a process
  NCAST_MOST_CODEC_PARAMETERS = 4
};

// The blocks of one value type, with the parameters of the codec.
typedef struct {
  ncast_dtype dtype;
  uint32_t block_bytes, block_elems;               // size of the values, and their number
  double parameters[NCAST_MOST_CODEC_PARAMETERS];  // in the order of the description; of a choice its number, from 1
} ncast_user_block;

// What the encoder of a block knows besides its values: the only source of random numbers, so that calls can be
// repeated. In frames that no communicator sends, all but first_elem is 0.
typedef struct {
  uint64_t first_elem;  // index of the block's first value in the frame, or in the rank's values of the call
  uint32_t call, rank;  // how many calls came before; the rank that encodes
  uint32_t stage;       // 0: the rank's own values; 1: the result of a reduction; 2 or more: values passed on by a plan
} ncast_user_context;

// The description of a codec. All pointers stay valid, and functions are called by any thread, several at a time. They
// do not allocate and require no alignment.
typedef struct {
  size_t struct_bytes;  // sizeof(ncast_user_codec_description)
  uint32_t version;     // NCAST_USER_CODEC_VERSION
  uint32_t id;          // in frames: NCAST_FIRST_USER_CODEC to NCAST_LAST_USER_CODEC
  const char* name;     // a lower-case letter, then these, digits and _; at most 31 characters
  int exact;            // 1: decoding restores all bits; 0: errors are within error_bound()
  int fixed_payload;    // 1: the payloads of all blocks of a type with the same parameters are equally long
  uint32_t parameter_count, type_count;
  const ncast_codec_parameter* parameters;  // 48 bits together at most (ncast_parameter_kind); defaults in range
  const ncast_codec_type* types;  // block_bytes: a multiple of 512, at most 8192; prior_ratio: above 0, at most 1
  // fixed_payload: the bytes of a block's payload, a multiple of 16, at most block_bytes. Otherwise NULL.
  size_t (*payload_bytes)(const ncast_user_block* block);
  // values: block_bytes readable bytes. payload: block_bytes writable bytes. Returns the size of the payload, a
  // multiple of 16; block_bytes, unless payloads are fixed, to have the block stored raw.
  size_t (*encode)(const ncast_user_block* block, const ncast_user_context* context, const void* values, void* payload);
  // payload: payload_bytes arbitrary bytes, at most block_bytes. Writes block_bytes to values. Returns 0 if the payload
  // does not follow the format, otherwise 1.
  int (*decode)(const ncast_user_block* block, const void* payload, size_t payload_bytes, void* values);
  // Not exact: the maximum absolute error in a block whose largest finite magnitude is `largest`. Otherwise NULL.
  double (*error_bound)(const ncast_user_block* block, double largest);
} ncast_user_codec_description;

// The function that the library of a codec exports, as "ncast_user_codec".
typedef const ncast_user_codec_description* (*ncast_user_codec_function)(void);

// Loads the shared library of a codec, and adds the codec to those of this process. It is never unloaded. All ranks of
// a communicator must have registered the same libraries, byte for byte; its creation fails with MISMATCH otherwise.
//   path: as for dlopen(); a relative path with a slash is relative to the current directory.
//   codec: receives the id; may be NULL.
// Call it before the process creates its first communicator, predictor or explanation, and reads its first cost model:
// these fix the set of codecs. The same library may be registered again.
// Errors: INVALID_ARGUMENT: the library cannot be loaded, does not describe a valid codec, or has the name or id of
// another one; or the set of codecs is fixed. UNSUPPORTED: the library was made for another version.
NCAST_API ncast_status ncast_codec_register(const char* path, ncast_codec* codec);

// Compiles the CUDA header of a registered codec for values of a type and GPUs of a compute capability, such as 90 for
// 9.0, as communicators do. Needs no GPU.
//   folder: for the kernels, created if need be. NULL: the folder of the cache; "": none.
// Errors: INVALID_ARGUMENT, with the compiler's messages, if the header does not compile; UNSUPPORTED if the codec has
// none, or if NVRTC is missing or cannot compile for these GPUs.
NCAST_API ncast_status ncast_codec_compile(ncast_codec codec, ncast_dtype dtype, int architecture, const char* folder);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_USER_CODEC_H_
