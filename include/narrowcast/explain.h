// How a call would run, why, and how long it should take, without making it. Calls run by the same decision. Times are
// predicted from measured ones (docs/guide/tuning.md).
#ifndef NARROWCAST_EXPLAIN_H_
#define NARROWCAST_EXPLAIN_H_

#include "narrowcast/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

// An explanation. It owns its strings.
typedef struct ncast_explanation ncast_explanation;

// How the call runs. Set struct_bytes to sizeof(ncast_decision) before the call; later versions append members. Strings
// are constants, or live as long as the explanation.
typedef struct {
  size_t struct_bytes;
  const char* candidate;     // "packets", "blocks:raw", "blocks:window", ...; "copy": a rank that is alone copies its
                             // values; "none": there are no values; on the host backend "frames:raw", ...; "plan:ring",
                             // ...: a plan that runs instead of the built-in way; "steps": the call is made in two
                             // levels, by steps that run as calls of one level do
  const char* link;          // constant: "nvlink", "pcie", "host" (through host memory), "gpu_network" (GPUs of
                             // several hosts), "shm" (host backend), "network" (host backend, several hosts), or
                             // "two_levels"
  ncast_codec codec;         // of the values on the link (in two levels: between hosts), or of the contributions; never
                             // AUTO
  int two_shot;              // all_reduce by packets: 1: each rank reduces one piece and sends the result; 0: each rank
                             // reduces everything
  uint32_t ctas;             // of the kernel on the rank with the most to do; 0: no kernel runs
  uint32_t warps;            // of a CTA
  uint32_t rings;            // by blocks: those that carry the largest piece from one rank to another; otherwise 0
  uint32_t block_bytes;      // by blocks: bytes of the values in a block; otherwise 0
  uint32_t packet_bytes;     // by packets, with flag: 8 (host), 16, or 128 (long, nvlink); otherwise 0
  const char* path_reason;   // constant: why this candidate
  const char* shots_reason;  // constant: why one shot or two; NULL if the operation has no choice
  const char* codec_reason;  // constant: why this codec
  double microseconds;       // predicted; 0: not known
  const char* costs_warning;  // why the cost model may not fit this library; NULL: it fits, or is not used
  const char* sentence;       // all of this in words
  const char* plan;           // the plan that runs, "all_pairs", "relay", ... (ncast_plan_build), or the name of one
                              // that was added (ncast_comm_add_plan); NULL if no plan describes the call
  const char* allowed;        // the codecs that the call allows, "window, ..." or "window!"; "": only raw
  double error_bound;  // ncast_call_error_bound() or ncast_all_reduce_error_bound() for values of at most 1; 0: exact;
                       // NaN: it is not known: a plan that is not built in runs, or the call is made in two levels
  ncast_codec result_codec;  // of the results of an all_reduce: another one only if the call names one
} ncast_decision;

// The prediction for one candidate. Set struct_bytes to sizeof(ncast_candidate) before the call; later versions append
// members.
typedef struct {
  size_t struct_bytes;
  const char* name;                    // "nccl" is NCCL's fastest way, "nccl:default" what NCCL does without symmetric
                                       // windows and copy engines; "plan:ring", ...: plans that are not built in
  double microseconds;                 // 0: not known, or the candidate cannot run the call
  double incompressible_microseconds;  // for values that do not shrink; 0: as above
  const char* plan;                    // the name of the plan, for people; NULL: not such a plan
  const char* why_not;                 // constant: why the plan does not run the call; NULL: it does, or is no plan
} ncast_candidate;

// A call compared with NCCL. Set struct_bytes to sizeof(ncast_comparison) before the call; later versions append
// members.
typedef struct {
  size_t struct_bytes;
  int faster;                // 1: the predicted time is less than NCCL's
  double microseconds;       // 0: not known
  double nccl_microseconds;  // 0: not known
  const char* reason;        // constant: why the call is not faster; NULL if it is
  const char* plan;   // the name of a plan that runs instead of the built-in way; NULL: none. Lives as long as the
                      // predictor
  int always;         // 1: the plan is used for all calls that it suits (ncast_plan_use), whatever NCCL's time
  ncast_codec codec;  // of the values on the link; never AUTO
} ncast_comparison;

// Counts are those of the functions in comm.h; for all_to_all_v it is the largest piece, on which no decision depends.
// All functions that return a status return INVALID_ARGUMENT for invalid arguments.

// Explains a call between GPUs with NVLink. Needs neither a communicator nor a GPU. For ranks that use plans, ask a
// predictor: ncast_predictor_use_plan and ncast_predictor_explain_call, in plan.h.
//   ranks: 1 to 8.
//   config: the configuration of all ranks, of which max_ctas, p2p and cost_model count; the environment of this
//           process sets what it leaves open. NULL: all are open.
//   explanation: free it with ncast_explanation_destroy.
NCAST_API ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                                     int ranks, const ncast_comm_config* config, ncast_explanation** explanation);

// Explains a call of this communicator. The result is the same on all its ranks. Any thread.
NCAST_API ncast_status ncast_comm_explain(ncast_comm* comm, ncast_operation operation, uint64_t count,
                                          ncast_dtype dtype, ncast_codec codec, ncast_explanation** explanation);

// The largest absolute error of a finite value in the result of a call that the library runs in a built-in way with a
// lossy codec, compared with the exact result. Codecs and rounding contribute to it.
//   codec: of the values on the link, forced or not. AUTO allows exact codecs only; WITHIN several, of whose bounds the
//          largest counts.
//   op: ignored if the operation does not reduce.
//   largest: `ranks` numbers, for each rank the largest finite magnitude of the values that it sends. For a value of
//            the result it suffices to consider values that are less than two blocks of the codec away.
// Values that are moved are encoded once. Reductions decode the contributions of all ranks but the one that computes
// the result, and all but a reduce-scatter encode the result. If a value of a block is not finite, codecs may make
// others NaN.
// Returns 0 if the codec is exact or does not encode the type, infinity if the result may overflow, and NaN if an
// argument is not valid.
NCAST_API double ncast_call_error_bound(ncast_operation operation, ncast_dtype dtype, ncast_redop op, ncast_codec codec,
                                        int ranks, const double* largest);

// Replaces the cost model of a communicator. All ranks call this with the same text, at the same position of their
// calls.
//   text: as in a file (docs/guide/tuning.md). Of a communicator of two levels, a level whose link the text does not
//         contain keeps its model.
//   Errors: INVALID_ARGUMENT with the line; the model is then unchanged.
NCAST_API ncast_status ncast_comm_set_costs(ncast_comm* comm, const char* text);

// Gets the decision, as much of it as decision->struct_bytes has room for.
NCAST_API ncast_status ncast_explanation_decision(const ncast_explanation* explanation, ncast_decision* decision);
// The number of candidates, whose indices begin with 0. After the built-in ones come plans for the operation.
NCAST_API uint32_t ncast_explanation_candidates(const ncast_explanation* explanation);
// Gets the prediction for the candidate with this index.
NCAST_API ncast_status ncast_explanation_candidate(const ncast_explanation* explanation, uint32_t index,
                                                   ncast_candidate* candidate);
// NULL is allowed.
NCAST_API void ncast_explanation_destroy(ncast_explanation* explanation);

// Compares calls with NCCL, for programs that can also use NCCL. A comparison takes well under a microsecond if a
// similar call was compared or made recently. All threads may use a predictor at the same time.
typedef struct ncast_predictor ncast_predictor;

// For ranks that have no communicator yet. Arguments: as in ncast_explain. The file of the cost model is read once.
//   predictor: free it with ncast_predictor_destroy.
NCAST_API ncast_status ncast_predictor_create(int ranks, const ncast_comm_config* config, ncast_predictor** predictor);

// For calls of this communicator, which share their decisions with the predictor. It may outlive the communicator.
//   predictor: free it with ncast_predictor_destroy.
NCAST_API ncast_status ncast_comm_predictor(ncast_comm* comm, ncast_predictor** predictor);

// Compares a call with NCCL. The result is the same on all ranks.
//   with_windows: 1: NCCL may use symmetric windows and copy engines; 0: compare with its default.
NCAST_API ncast_status ncast_predictor_compare(const ncast_predictor* predictor, ncast_operation operation,
                                               uint64_t count, ncast_dtype dtype, ncast_codec codec, int with_windows,
                                               ncast_comparison* comparison);

// Why the cost model may not fit this library, for a log; NULL: it fits, or is not used. Freed with the predictor.
NCAST_API const char* ncast_predictor_costs_warning(const ncast_predictor* predictor);

// NULL is allowed.
NCAST_API void ncast_predictor_destroy(ncast_predictor* predictor);

// A hash of the sources that determine how long calls take. Cost models name the one that they were measured with.
NCAST_API const char* ncast_kernels_hash(void);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_EXPLAIN_H_
