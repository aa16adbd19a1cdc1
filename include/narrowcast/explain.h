// What the CUDA backend would do with a call, and why, without making it: by the same functions that decide for its
// calls. Needs neither a communicator nor a GPU.
#ifndef NARROWCAST_EXPLAIN_H_
#define NARROWCAST_EXPLAIN_H_

#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// The calls of comm.h.
typedef enum {
  NCAST_OP_SEND = 0,
  NCAST_OP_RECV = 1,
  NCAST_OP_BROADCAST = 2,
  NCAST_OP_REDUCE = 3,
  NCAST_OP_GATHER = 4,
  NCAST_OP_SCATTER = 5,
  NCAST_OP_ALL_GATHER = 6,
  NCAST_OP_ALL_TO_ALL = 7,
  NCAST_OP_ALL_TO_ALL_V = 8,
  NCAST_OP_REDUCE_SCATTER = 9,
  NCAST_OP_ALL_REDUCE = 10
} ncast_operation;

typedef struct {
  int packets;            // 1: by packets, each 16 bytes of data and flag; 0: by blocks of values, through slots
  int two_shot;           // all_reduce: 1: the ranks reduce a piece each and pass it on; 0: each reduces all for itself
  uint32_t ctas;          // of a rank's kernel; 0: no kernel runs
  uint32_t warps;         // of a CTA
  uint32_t lanes;         // that share what one rank sends another, the largest piece; 0 by packets
  uint32_t block_bytes;   // of values; 0 by packets
  ncast_codec codec;      // RAW or WINDOW
  const char* path_why;   // why by packets or blocks; constant
  const char* shots_why;  // why one shot or two; NULL where the operation has no choice
  const char* codec_why;  // why this codec; constant
  char sentence[512];     // all of it
} ncast_explanation;

// Explains a call with these arguments (counts are those of the calls in comm.h; all_to_all_v: of the largest piece).
//   ranks: 1 to 8.
//   max_ctas: the least NARROWCAST_MAX_CTAS of the ranks; 0: this process's, or the most that there may be.
// Errors: INVALID_ARGUMENT.
NCAST_API ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                                     int ranks, uint32_t max_ctas, ncast_explanation* explanation);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_EXPLAIN_H_
