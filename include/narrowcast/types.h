// Types that all parts of the C API use. No function here blocks, allocates or uses a GPU.
#ifndef NARROWCAST_TYPES_H_
#define NARROWCAST_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NCAST_API __attribute__((visibility("default")))
#else
#define NCAST_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The result of a call. ncast_last_error() says what was wrong and where.
typedef enum {
  NCAST_OK = 0,
  NCAST_INVALID_ARGUMENT = 1,  // an argument is out of its range; nothing was done
  NCAST_CORRUPT = 2,           // encoded data does not follow the format, or fails its checksum
  NCAST_TOO_SMALL = 3,         // the caller's buffer cannot hold the result
  NCAST_UNSUPPORTED = 4,       // valid, but not built in or not available on this machine
  NCAST_CUDA_ERROR = 5,        // the CUDA runtime or driver failed
  NCAST_SYSTEM_ERROR = 6,      // the operating system failed (shared memory, files, threads)
  NCAST_REMOTE_ERROR = 7,      // a peer died or reported an error
  NCAST_ABORTED = 8,           // the communicator was aborted
  NCAST_TIMEOUT = 9,           // a peer did not respond within the time limit of a rank; the same on every rank
  NCAST_MISMATCH = 10,         // ranks disagree about the arguments of a call
  NCAST_INTERNAL = 11          // a bug in Narrowcast
} ncast_status;

// Value types. The numbers are those of ncclDataType_t.
typedef enum {
  NCAST_INT8 = 0,
  NCAST_UINT8 = 1,
  NCAST_INT32 = 2,
  NCAST_UINT32 = 3,
  NCAST_INT64 = 4,
  NCAST_UINT64 = 5,
  NCAST_FLOAT16 = 6,
  NCAST_FLOAT32 = 7,
  NCAST_FLOAT64 = 8,
  NCAST_BFLOAT16 = 9,
  NCAST_FLOAT8_E4M3 = 10,
  NCAST_FLOAT8_E5M2 = 11
} ncast_dtype;

// A codec and its parameters. docs/format/ specifies each codec. codec.h has functions that list the codecs and convert
// them to and from text ("window", "name:key=value").
//   bits 0-7    the id: one of the constants below
//   bit 8       NCAST_CODEC_FORCED, only in the calls of a communicator
//   bits 9-15   0
//   bits 16-63  the parameters, the first one in the lowest bits; ncast_parameter_kind says how many bits each one has.
//               0 means the parameter's default
// So an id alone is the codec with its default parameters.
//
// In a call, a codec is what the call allows: the library takes packets, raw values or an allowed codec, whichever is
// predicted to be fastest, the same on all ranks. RAW allows no codec, AUTO every exact codec of the library, and any
// other codec itself. With FORCED ("window!" in text) the values are encoded even if that is slower, for tests and
// benchmarks. Frames and plans contain the codec alone.
//
// WITHIN ("within:relative=0.01") is an error budget: it allows every exact codec, and the lossy ones whose results are
// certain to differ by at most that share of the largest magnitude that a result can have. If no contribution exceeds
// A, that is A for values that are moved and for AVG, MIN and MAX, the number of ranks times A for SUM, and A to the
// power of that number for PROD. Lossy codecs have their default parameters. Values near the smallest and largest of
// the type are excepted. ncast_call_error_bound() has the bounds.
//   bits 16-47  the share, a float above 0 and below 1
//   bits 48-63  0
typedef uint64_t ncast_codec;

// The ids. If a codec does not support a value type, values of that type are stored raw. Calls and plans that move
// integers, or reduce other than by SUM and AVG, accept exact codecs only (INVALID_ARGUMENT). AUTO, WITHIN and FORCED
// are only for the calls of a communicator. AUTO cannot be forced, and a forced RAW is RAW.
enum {
// NOLINTNEXTLINE(bugprone-macro-parentheses): an enumerator
#define NCAST_CODEC_ROW(id, SYMBOL, name, code, exactness, payload, parameters, types) NCAST_CODEC_##SYMBOL = id,
#include "narrowcast/codecs.def"
  NCAST_CODEC_WITHIN = 254,
  NCAST_CODEC_AUTO = 255,
  NCAST_CODEC_FORCED = 256  // a flag, added to an id
};

// Reductions. The numbers are those of ncclRedOp_t.
typedef enum { NCAST_SUM = 0, NCAST_PROD = 1, NCAST_MAX = 2, NCAST_MIN = 3, NCAST_AVG = 4 } ncast_redop;

// A cudaStream_t for CUDA calls, a stream from ncast_stream_create for the host backend, or NULL.
typedef void* ncast_stream;

// "major.minor.patch" of the library.
NCAST_API const char* ncast_version(void);

// A short name for a status, such as "corrupt data". Never NULL.
NCAST_API const char* ncast_status_name(ncast_status status);

// The message of the last call on this thread that did not return NCAST_OK, or "". The pointer is valid until the next
// call of the library on this thread.
NCAST_API const char* ncast_last_error(void);

// Bytes of one value, or 0 if dtype is not a value type.
NCAST_API size_t ncast_dtype_bytes(ncast_dtype dtype);

// Lower-case name of a value type ("bfloat16", "float8_e4m3", ...), or NULL if dtype is not a value type.
NCAST_API const char* ncast_dtype_name(ncast_dtype dtype);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_TYPES_H_
