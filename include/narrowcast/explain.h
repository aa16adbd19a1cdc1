// What the CUDA backend would do with a call, why, and how long that should take, without making it: by the same functions
// that decide for its calls, from times that were measured (docs/guide/tuning.md).
#ifndef NARROWCAST_EXPLAIN_H_
#define NARROWCAST_EXPLAIN_H_

#include "narrowcast/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// Microseconds that the cost model predicts for one way of a call; 0: it does not know, or the way is not possible. For
// fewer CTAs than the model was measured with they are stretched by a rule.
typedef struct {
  double microseconds;   // as chosen; coded, with values that the codec shrinks as it does weights
  double packets;        // raw, by packets
  double raw;            // raw, by blocks
  double window;         // coded, of values that shrink
  double window_random;  // coded, of values that do not
  double nccl;           // the best of NCCL's ways
  double nccl_default;   // what NCCL does where the program does not ask for symmetric windows or copy engines
} ncast_prediction;

typedef struct {
  int packets;            // 1: by packets of data and a flag; 0: by blocks of values, through slots
  int two_shot;           // all_reduce: 1: the ranks reduce a piece each and pass it on; 0: each reduces all for itself
  int over_host;          // 1: through host memory, since GPUs cannot reach each other or are not to
  uint32_t ctas;          // of a rank's kernel; 0: no kernel runs
  uint32_t warps;         // of a CTA
  uint32_t rings;         // that share what one rank sends another, the largest piece; 0 by packets
  uint32_t block_bytes;   // of values; 0 by packets
  uint32_t packet_bytes;  // with the flag: 16, or 128 where a line arrives whole; 0 by blocks
  ncast_codec codec;      // RAW or WINDOW
  const char* path_why;   // why by packets or blocks; constant
  const char* shots_why;  // why one shot or two; NULL where the operation has no choice
  const char* codec_why;  // why this codec; constant
  ncast_prediction predicted;
  char sentence[768];  // all of it
} ncast_explanation;

// Counts are those of the calls in comm.h; of all_to_all_v that of the largest piece, which the choice does not know.
// Errors of all: INVALID_ARGUMENT; those with a communicator: UNSUPPORTED where it is not one of GPUs.

// Explains a call between GPUs that can reach each other. Needs neither a communicator nor a GPU.
//   ranks: 1 to 8.
//   config: what all ranks' communicators are made with: max_ctas, p2p and cost_model count, and where they are open this
//           process's environment. NULL: all are open.
NCAST_API ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                                     int ranks, const ncast_comm_config* config, ncast_explanation* explanation);

// The times of it alone, without words, at the cost of a short calculation; a file of times is read once. Any thread.
NCAST_API ncast_status ncast_predict(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                                     int ranks, const ncast_comm_config* config, ncast_prediction* prediction);

// Explains what this communicator does with a call: the same on all its ranks. Any thread.
NCAST_API ncast_status ncast_comm_explain(ncast_comm* comm, ncast_operation operation, uint64_t count,
                                          ncast_dtype dtype, ncast_codec codec, ncast_explanation* explanation);

// The times of it alone, without words: for who can make a call in another way, too, and takes the faster one. The same on
// all ranks. Any thread.
NCAST_API ncast_status ncast_comm_predict(ncast_comm* comm, ncast_operation operation, uint64_t count,
                                          ncast_dtype dtype, ncast_codec codec, ncast_prediction* prediction);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_EXPLAIN_H_
