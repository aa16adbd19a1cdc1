// Encode values into frames and back, in host memory. The bytes are specified in docs/format/.
#ifndef NARROWCAST_CODEC_H_
#define NARROWCAST_CODEC_H_

#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  NCAST_CHECKSUM = 1u,  // encode: put an xxHash (XXH3, 64 bits) of the frame into its header
  NCAST_MORE = 2u,      // encode: another frame of the same stream follows this one
  NCAST_REFERENCE = 4u  // encode, decode: use the scalar reference, the oracle of the tests
};

// What the header of a frame says.
typedef struct {
  uint64_t elems;        // values that the frame decodes to
  uint64_t raw_bytes;    // their bytes
  uint64_t wire_bytes;   // bytes of the whole frame, header and padding included; a multiple of 16
  uint64_t checksum;     // 0 unless flags has NCAST_CHECKSUM
  uint32_t blocks;       // blocks in the frame; 0 when codec is NCAST_CODEC_RAW
  uint32_t block_elems;  // values in every block but the last; 0 when codec is NCAST_CODEC_RAW
  uint32_t flags;        // NCAST_CHECKSUM, NCAST_MORE
  uint32_t version;
  ncast_codec codec;
  ncast_dtype dtype;
} ncast_frame_info;

// How the blocks of a window frame were coded. Counts are of whole frames.
typedef struct {
  uint64_t blocks_of_width[8];  // [w]: blocks with w-bit codes; [0]: raw blocks
  uint64_t escapes;             // values kept out of line
  uint64_t far_escapes;         // escapes that took a whole exponent
} ncast_block_stats;

enum { NCAST_FRAME_HEADER_BYTES = 64, NCAST_FRAME_ALIGN = 16 };

// The most bytes that a frame of `elems` values can take, or 0 when an argument is not valid or the values exceed 2^35
// bytes, the most that one frame holds.
NCAST_API size_t ncast_bound(ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// Encodes `elems` values into one frame.
//   values: any alignment; may be NULL when elems is 0.
//   flags: NCAST_CHECKSUM | NCAST_MORE | NCAST_REFERENCE. The last changes the path, not a byte of the result.
//   frame: any alignment; capacity >= ncast_bound() always suffices.
//   wire_bytes: bytes written.
// Errors: INVALID_ARGUMENT, TOO_SMALL (nothing usable in frame).
NCAST_API ncast_status ncast_encode(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec,
                                    uint32_t flags, void* frame, size_t capacity, size_t* wire_bytes);

// Decodes one frame, which may be hostile: whatever its bytes, nothing is written outside `values`.
//   frame_bytes: bytes readable at frame; more than the frame holds is allowed (the next frame of a stream).
//   flags: 0 or NCAST_REFERENCE.
//   values: any alignment; value_capacity bytes are writable.
//   info: what the header says; may be NULL.
// Errors: CORRUPT, TOO_SMALL (the values do not fit), INVALID_ARGUMENT. `values` is unspecified after an error.
NCAST_API ncast_status ncast_decode(const void* frame, size_t frame_bytes, uint32_t flags, void* values,
                                    size_t value_capacity, ncast_frame_info* info);

// Reads a frame's header. frame_bytes may be as few as NCAST_FRAME_HEADER_BYTES: the body is not looked at.
NCAST_API ncast_status ncast_inspect(const void* frame, size_t frame_bytes, ncast_frame_info* info);

// Walks a whole frame and counts how its blocks were coded, without decoding values. A raw frame gives zeros.
NCAST_API ncast_status ncast_inspect_blocks(const void* frame, size_t frame_bytes, ncast_block_stats* stats);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_CODEC_H_
