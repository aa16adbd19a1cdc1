// How a call runs, why, and how long it should take, without making the call. Calls are launched by the same decision,
// from times that were measured (docs/guide/tuning.md).
#ifndef NARROWCAST_EXPLAIN_H_
#define NARROWCAST_EXPLAIN_H_

#include "narrowcast/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// An explanation, with its strings.
typedef struct ncast_explanation ncast_explanation;

// How the call runs. Set struct_bytes to sizeof(ncast_decision) first; later versions append members. Strings that are
// not constant live as long as the explanation.
typedef struct {
  size_t struct_bytes;
  const char* candidate;      // constant: "packets", "blocks:raw", "blocks:window"; "copy", "none"; on the host backend
                              // "frames:raw", "frames:window"
  const char* link;           // constant: "nvlink", "pcie", "host" (through host memory), "shm" (host backend)
  ncast_codec codec;          // RAW or WINDOW
  int two_shot;               // all_reduce by packets: 1: ranks reduce a piece each and pass it on; 0: each reduces all
  uint32_t ctas;              // of a rank's kernel; 0: no kernel runs
  uint32_t warps;             // of a CTA
  uint32_t rings;             // by blocks: that carry what one rank sends another, the largest piece; else 0
  uint32_t block_bytes;       // by blocks: of values; else 0
  uint32_t packet_bytes;      // by packets: with the flag: 16, or 128 where a line arrives whole; else 0
  const char* path_reason;    // constant: why this candidate
  const char* shots_reason;   // constant: why one shot or two; NULL when there is no choice
  const char* codec_reason;   // constant: why this codec
  double microseconds;        // predicted for the call as it runs; 0: not known
  const char* costs_warning;  // NULL, or why the cost model may not fit this library
  const char* sentence;       // all of this in words
} ncast_decision;

// What the cost model predicts for one candidate. Set struct_bytes to sizeof(ncast_candidate) first; later versions
// append members.
typedef struct {
  size_t struct_bytes;
  const char* name;                    // constant; those of NCCL: "nccl", its fastest way, and "nccl:default", what it
                                       // does without symmetric windows and copy engines
  double microseconds;                 // 0: not known, or this candidate cannot run the call
  double incompressible_microseconds;  // with values that do not shrink; 0: as above
} ncast_candidate;

// The call as it runs compared with NCCL. Set struct_bytes to sizeof(ncast_comparison) first; later versions append
// members.
typedef struct {
  size_t struct_bytes;
  int faster;                // 1: the model predicts that it takes less time than NCCL
  double microseconds;       // 0: not known
  double nccl_microseconds;  // 0: not known
  const char* reason;        // constant: why not faster; NULL when it is
} ncast_comparison;

// Counts are those of the calls in comm.h; of all_to_all_v that of the largest piece, which no decision depends on.
// Errors of all: INVALID_ARGUMENT.

// Explains a call between GPUs that can reach each other over NVLink. Needs neither a communicator nor a GPU.
//   ranks: 1 to 8.
//   config: what all ranks create their communicators with: max_ctas, p2p and cost_model count; this process's
//           environment fills in what it leaves open. NULL: all are open.
//   explanation: free it with ncast_explanation_destroy.
NCAST_API ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                                     int ranks, const ncast_comm_config* config, ncast_explanation** explanation);

// Explains what this communicator does with a call: the same on all its ranks. Any thread.
NCAST_API ncast_status ncast_comm_explain(ncast_comm* comm, ncast_operation operation, uint64_t count,
                                          ncast_dtype dtype, ncast_codec codec, ncast_explanation** explanation);

// How the call would run. decision->struct_bytes says how much of it the caller knows.
NCAST_API ncast_status ncast_explanation_decision(const ncast_explanation* explanation, ncast_decision* decision);
// Candidates of an explanation: indices 0 to count - 1.
NCAST_API uint32_t ncast_explanation_candidates(const ncast_explanation* explanation);
NCAST_API ncast_status ncast_explanation_candidate(const ncast_explanation* explanation, uint32_t index,
                                                   ncast_candidate* candidate);
// NULL is allowed.
NCAST_API void ncast_explanation_destroy(ncast_explanation* explanation);

// For programs that can also use NCCL: is the call faster here? Short, and cached by the communicator. Any thread.
//   with_windows: 1: NCCL may use symmetric windows and copy engines; 0: compare with its default.
NCAST_API ncast_status ncast_comm_compare(ncast_comm* comm, ncast_operation operation, uint64_t count,
                                          ncast_dtype dtype, ncast_codec codec, int with_windows,
                                          ncast_comparison* comparison);

// The same before there is a communicator, as ncast_explain. A file of costs is read once.
NCAST_API ncast_status ncast_compare(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                                     int ranks, const ncast_comm_config* config, int with_windows,
                                     ncast_comparison* comparison);

// A hash of the sources that decide how long calls take: cost models name the one that they were measured with.
NCAST_API const char* ncast_kernels_hash(void);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_EXPLAIN_H_
