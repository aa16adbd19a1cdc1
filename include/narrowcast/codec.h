// The codecs, and encoding and decoding in host memory. docs/format/ specifies the bytes of frames.
#ifndef NARROWCAST_CODEC_H_
#define NARROWCAST_CODEC_H_

#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  NCAST_CHECKSUM = 1u,    // a 64-bit XXH3 of the frame is in its header: the default of ncast_encode
  NCAST_MORE = 2u,        // encode: another frame of the same stream follows this one
  NCAST_REFERENCE = 4u,   // encode, decode: use the scalar reference, the oracle of the tests
  NCAST_NO_CHECKSUM = 8u  // encode: store no checksum, for frames that nothing can change
};

// --- The codecs
// --------------------------------------------------------------------------------------------------------

// The kind of a parameter, and how an ncast_codec contains it.
typedef enum {
  NCAST_PARAMETER_INTEGER = 0,       // 16 bits: the number
  NCAST_PARAMETER_POWER_OF_TWO = 1,  // 8 bits: its exponent and 1
  NCAST_PARAMETER_REAL = 2,          // 32 bits: a float, above 0
  NCAST_PARAMETER_CHOICE = 3         // 8 bits: the number of one of the names in `choices`, from 1
} ncast_parameter_kind;

// A parameter of a codec.
typedef struct {
  const char* name;
  ncast_parameter_kind kind;
  double least, most;
  double default_value;
  const char* choices;  // CHOICE: "nearest|stochastic"; otherwise NULL
} ncast_codec_parameter;

// A value type that a codec encodes.
typedef struct {
  ncast_dtype dtype;
  uint32_t block_bytes;  // size of the values of a block, the unit of coding
  double prior_ratio;    // the ratio, wire bytes / raw bytes, that the cost model assumes
} ncast_codec_type;

// A codec of the library. All pointers point to constants.
typedef struct {
  size_t struct_bytes;  // sizeof(ncast_codec_info), set by the caller
  ncast_codec codec;    // the id: the codec with its default parameters
  const char* name;
  int exact;          // 1: decoding restores all bits; 0: errors are within ncast_codec_error_bound()
  int fixed_payload;  // 1: the payload length of a whole block depends on type and parameters only
  uint32_t parameter_count, type_count, counter_count;
  const ncast_codec_parameter* parameters;
  const ncast_codec_type* types;
  const char* const* counters;  // names of the counters of ncast_inspect_blocks()
} ncast_codec_info;

// The number of codecs that ncast_codec_describe() describes. AUTO is not one of them.
NCAST_API size_t ncast_codec_count(void);

// Describes codec number `index`, which is below ncast_codec_count(). Writes at most info->struct_bytes.
// Errors: INVALID_ARGUMENT.
NCAST_API ncast_status ncast_codec_describe(size_t index, ncast_codec_info* info);

// Parses "auto", the name of a codec or preset, "name:key=value,key=value" or "within:relative=R". All but auto may end
// with "!": NCAST_CODEC_FORCED. The result is canonical: equal codecs are equal numbers. Errors: INVALID_ARGUMENT. The
// message names the unknown codec or key, or the value and its range.
NCAST_API ncast_status ncast_codec_parse(const char* text, ncast_codec* codec);

// A preset is a name for a codec with parameters, which ncast_codec_parse() replaces: "sdp4bit". It may be followed by
// further parameters, as in "sdp4bit:seed=7". The names are those of other systems' recipes (docs/guide/lossy.md).
//   index: from 0
//   codec: receives the text that the name stands for; may be NULL
// Returns the name, or NULL if there are no more presets.
NCAST_API const char* ncast_codec_preset(size_t index, const char** codec);

// Writes the canonical text of a codec and a terminating NUL. Parameters that have their default are omitted. Accepts
// the codecs of calls, AUTO, WITHIN and FORCED included.
// Errors: INVALID_ARGUMENT (not a codec), TOO_SMALL (a capacity of NCAST_CODEC_TEXT_BYTES always suffices).
NCAST_API ncast_status ncast_codec_format(ncast_codec codec, char* text, size_t capacity);

enum { NCAST_CODEC_TEXT_BYTES = 128 };

// The maximum absolute error of a finite value in a block whose largest finite magnitude is `largest`. 0 if the codec
// is exact or stores values of this type raw. NaN if an argument is not valid.
NCAST_API double ncast_codec_error_bound(ncast_codec codec, ncast_dtype dtype, double largest);

// --- Frames
// ------------------------------------------------------------------------------------------------------------

// The header of a frame.
typedef struct {
  size_t struct_bytes;  // sizeof(ncast_frame_info), set by the caller; shorter, older versions are accepted
  uint64_t elems;       // number of values in the frame
  uint64_t raw_bytes;   // size of the decoded values
  uint64_t wire_bytes;  // size of the whole frame, including header and padding; a multiple of 16
  uint64_t checksum;    // 0 unless flags has NCAST_CHECKSUM
  ncast_codec codec;    // canonical
  ncast_dtype dtype;
  uint32_t blocks;       // blocks in the frame; 0 for a codec with fixed payloads
  uint32_t block_elems;  // values in every block except the last; 0 for a codec with fixed payloads
  uint32_t flags;        // NCAST_CHECKSUM, NCAST_MORE
  uint32_t version;
} ncast_frame_info;

enum { NCAST_FRAME_HEADER_BYTES = 64, NCAST_FRAME_ALIGN = 16 };

// The maximum size of a frame of `elems` values. 0 if an argument is not valid, or if the values exceed 2^35 bytes, the
// maximum of one frame.
NCAST_API size_t ncast_bound(ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// Encodes `elems` values into one frame.
//   values: any alignment; may be NULL if elems is 0.
//   flags: NCAST_MORE | NCAST_REFERENCE | NCAST_NO_CHECKSUM. REFERENCE does not change the result. The frame has a
//          checksum unless there is NO_CHECKSUM; CHECKSUM may be set too.
//   frame: any alignment; capacity >= ncast_bound() always suffices.
//   wire_bytes: bytes written.
// Errors: INVALID_ARGUMENT, TOO_SMALL (the content of frame is then unspecified).
NCAST_API ncast_status ncast_encode(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec,
                                    uint32_t flags, void* frame, size_t capacity, size_t* wire_bytes);

// Decodes one frame. The frame may be hostile: the function never writes outside `values`.
//   frame_bytes: bytes readable at frame; the next frame of a stream may follow.
//   flags: 0 or NCAST_REFERENCE.
//   values: any alignment; value_capacity bytes are writable.
//   info: receives the header; may be NULL.
// Errors: CORRUPT, TOO_SMALL (the values do not fit), INVALID_ARGUMENT. `values` is unspecified after an error.
NCAST_API ncast_status ncast_decode(const void* frame, size_t frame_bytes, uint32_t flags, void* values,
                                    size_t value_capacity, ncast_frame_info* info);

// Encodes `count` arrays of values into a frame each, with several threads. Array i has elems[i] values of dtypes[i] at
// values[i], and its frame has capacities[i] bytes at frames[i]; wire_bytes[i] receives its size. Further arguments as
// for ncast_encode. The arrays may differ in type and size; the largest are encoded first.
//   threads: at most this many, the caller's included; 0: as many as the CPUs that this thread may use.
// Errors: those of ncast_encode, of the first array that has one. The message names the array. The other arrays are
// encoded nevertheless; wire_bytes is 0 for those with an error.
NCAST_API ncast_status ncast_encode_batch(size_t count, const void* const* values, const ncast_dtype* dtypes,
                                          const uint64_t* elems, ncast_codec codec, uint32_t flags, void* const* frames,
                                          const size_t* capacities, size_t* wire_bytes, int threads);

// Decodes `count` frames, with several threads: frame i, of frame_bytes[i] readable bytes at frames[i], to values[i],
// which has room for value_capacities[i] bytes. Further arguments as for ncast_decode, threads and errors as above.
NCAST_API ncast_status ncast_decode_batch(size_t count, const void* const* frames, const size_t* frame_bytes,
                                          uint32_t flags, void* const* values, const size_t* value_capacities,
                                          int threads);

// Reads a frame's header. A frame_bytes of NCAST_FRAME_HEADER_BYTES suffices, because the body is not read.
// Errors: CORRUPT, INVALID_ARGUMENT.
NCAST_API ncast_status ncast_inspect(const void* frame, size_t frame_bytes, ncast_frame_info* info);

// Counts how the blocks of a frame were coded, without decoding the values. Each codec has its own counters:
// counters[i] receives the counter named ncast_codec_info.counters[i]. Later versions may append counters.
//   count: number of elements of counters. Elements beyond the codec's counters become 0.
// Errors: CORRUPT, INVALID_ARGUMENT.
NCAST_API ncast_status ncast_inspect_blocks(const void* frame, size_t frame_bytes, uint64_t* counters, size_t count);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_CODEC_H_
