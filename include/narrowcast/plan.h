// Plans: collectives that say which rank moves what to whom, in which order, with which codec. docs/design/plans.md
// defines them and their JSON form. Only the functions of loaded plans need a communicator.
#ifndef NARROWCAST_PLAN_H_
#define NARROWCAST_PLAN_H_

#include "narrowcast/comm.h"
#include "narrowcast/explain.h"
#include "narrowcast/operation.h"
#include "narrowcast/text.h"
#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// A plan. Immutable, so any number of threads can use it.
typedef struct ncast_plan ncast_plan;

// Set struct_bytes to sizeof(ncast_plan_info) before the call. Later versions append members. Strings live as long as
// the plan.
typedef struct {
  size_t struct_bytes;
  const char* name;
  ncast_operation operation;
  int root;  // 0 if the operation has none
  int ranks;
  uint32_t chunks;        // of a piece
  uint32_t groups;        // of the rank that has most
  uint64_t steps;         // of all ranks; those of a loop count once
  const char* cost_name;  // of its times in cost models: "plan:two-shot@1a2b3c4d"; depends on its name and content
} ncast_plan_info;

// Reads a plan of `bytes` bytes of JSON. Checks its form only; ncast_plan_verify checks what it does.
//   plan: destroy it with ncast_plan_destroy.
// Errors: INVALID_ARGUMENT, with the place in the text; UNSUPPORTED for another version of the form.
NCAST_API ncast_status ncast_plan_read(const char* json, size_t bytes, ncast_plan** plan);
// Writes a plan as JSON. Destroy the text with ncast_text_destroy. Error: INVALID_ARGUMENT if a pointer is NULL.
NCAST_API ncast_status ncast_plan_write(const ncast_plan* plan, ncast_text** json);
// Error: INVALID_ARGUMENT if a pointer is NULL, or struct_bytes is not the size of the struct.
NCAST_API ncast_status ncast_plan_describe(const ncast_plan* plan, ncast_plan_info* info);
// The plan that is verified, compiled and executed: replicated as often as `instances` says, and with adjacent steps
// fused. Destroy it with ncast_plan_destroy. Error: UNSUPPORTED if it is too large (docs/design/plans.md, "Limits").
NCAST_API ncast_status ncast_plan_lower(const ncast_plan* plan, ncast_plan** lowered);
// NULL is allowed.
NCAST_API void ncast_plan_destroy(ncast_plan* plan);

// How a plan is simulated. Set struct_bytes to sizeof(ncast_plan_simulation) before the call; later versions append
// members. Members that are 0 have their default.
typedef struct {
  size_t struct_bytes;
  uint64_t piece_bytes;    // bytes of `count` values of the call
  double ratio;            // wire bytes / raw bytes of encoded values; default 1
  uint32_t max_groups;     // ncast_plan_schedule: of a rank, even if the plan then takes longer; default: no limit
  int timeline;            // ncast_plan_simulate: 1: the report has the steps of all micro-batches
  uint32_t max_instances;  // ncast_plan_schedule: that the plan may be replicated into: 1, 2, 4 and so on; default 2
  int any_executor;        // ncast_plan_schedule: 1: the merged plan may exceed the limits of generated kernels
} ncast_plan_simulation;

// Predicts the time of a lowered plan on a machine, which is described in JSON (docs/design/plans.md, "Simulating").
// The first 32 micro-batches of a long call are simulated, and the others extrapolated.
// The report is a JSON object:
//   microseconds                         from the start of a call until the last rank has ended it
//   repeated_us                          of each of many calls in a row, as benchmarks measure; shorter where ranks can
//                                        begin the next call before others have ended this one
//   batches
//   groups: [{rank, group, busy_us}]     how long each group works
//   sent_bytes: [bytes]                  by rank, over its link or network
//   timeline: [[rank, group, step, batch, begin_us, end_us]]   of at most 32 micro-batches, stretched to the time
// Destroy it with ncast_text_destroy. Errors: INVALID_ARGUMENT for a plan that is refuted, an invalid description or
// too few GPUs; UNSUPPORTED for a plan that is too large.
NCAST_API ncast_status ncast_plan_simulate(const ncast_plan* lowered, const char* machine_json,
                                           const ncast_plan_simulation* simulation, ncast_text** report);

// Merges groups of a lowered plan that do not need CTAs of their own, so that the plan takes no longer on the machine.
// If the plan only uses rings, the merged plan can have several instances of it, with as many times the rings and
// chunks, each for a part of every chunk. If kernels can be generated for the given plan, they can be for the merged
// one, too.
//   scheduled: the merged plan; destroy it with ncast_plan_destroy.
//   report: a JSON object with before and after: {groups, microseconds, most_idle}, of all ranks. most_idle is the
//           largest share of the time, 0 to 1, in which a group does not work. Destroy it with ncast_text_destroy.
// Errors: as above; UNSUPPORTED if max_groups cannot be met.
NCAST_API ncast_status ncast_plan_schedule(const ncast_plan* lowered, const char* machine_json,
                                           const ncast_plan_simulation* simulation, ncast_plan** scheduled,
                                           ncast_text** report);

// Compiles the kernels of a plan ahead of time and keeps them in a folder, where ncast_plan_load finds them if it uses
// the same folder (NARROWCAST_PLAN_CACHE), even without NVRTC. Needs no GPU.
//   architecture: compute capability of the GPU, such as 90.
//   folder: NULL for the one that ncast_plan_load uses. It is created if necessary. "": nothing is kept.
//   report: a JSON text with the kernels, whether they are kept, and the time; destroy it with ncast_text_destroy. May
//     be NULL.
// Errors: INVALID_ARGUMENT, also if the plan is refuted; UNSUPPORTED, if the plan is neither proved nor refuted, no
// kernel can be generated for it, NVRTC is not installed, or it does not know the architecture; SYSTEM_ERROR, if the
// folder cannot be written; INTERNAL.
NCAST_API ncast_status ncast_plan_compile(const ncast_plan* plan, ncast_dtype dtype, ncast_redop op, int architecture,
                                          const char* folder, ncast_text** report);

// A plan that is ready to run on a communicator.
typedef struct ncast_loaded_plan ncast_loaded_plan;

// Prepares a plan for calls of one value type and, if its operation reduces, one reduction: lowers it, proves it and,
// on GPUs, compiles it. Compiled kernels are kept in a folder: NARROWCAST_PLAN_CACHE ("off": nowhere), by default
// narrowcast/plans in XDG_CACHE_HOME or ~/.cache. Collective, with the same plan, type and reduction on every rank.
//   loaded: destroy it with ncast_loaded_plan_destroy.
// Errors: INVALID_ARGUMENT, also if the plan is refuted; UNSUPPORTED, if the plan is neither proved nor refuted, this
// backend cannot run it, or NVRTC, which compiles it, is not installed; those of the backend; REMOTE_ERROR, if another
// rank has one of these errors, with its number and the reason; MISMATCH. All ranks get an error at once, and unless
// the communicator itself has failed, it remains usable.
NCAST_API ncast_status ncast_plan_load(ncast_comm* comm, const ncast_plan* plan, ncast_dtype dtype, ncast_redop op,
                                       ncast_loaded_plan** loaded);
// Takes part in ncast_plan_load of the other ranks if this rank cannot call it, for example because it failed to read
// the plan. They get REMOTE_ERROR with this rank and the reason. reason: for people; NULL is allowed.
NCAST_API ncast_status ncast_plan_decline(ncast_comm* comm, const char* reason);
// Executes the plan's operation: like the operation of the same name (comm.h), with the same buffers, counts, stream,
// order and errors. If the plan only works in place, send and recv must be the same memory, also for all_to_all, which
// otherwise does not work in place. Not allowed in groups. If the plan lets other ranks access inputs or outputs, these
// must be in registered memory (ncast_comm_register).
NCAST_API ncast_status ncast_loaded_plan_run(ncast_loaded_plan* loaded, const void* send, void* recv, uint64_t count,
                                             ncast_stream stream);
// Waits for the calls of this rank, which other ranks must not need any more, and frees the plan. Graphs that contain
// its calls must not be launched again. If the plan accesses memory of other ranks, waits until all ranks have called
// this. The communicator may have been destroyed. NULL is allowed. Error: INVALID_ARGUMENT, and the plan remains, if
// the open group of this thread has calls that run it.
NCAST_API ncast_status ncast_loaded_plan_destroy(ncast_loaded_plan* loaded);

// Which of a communicator's own calls run a plan. Set struct_bytes to sizeof(ncast_plan_use) before the call; later
// versions append members. Members that are 0 have their default.
typedef struct {
  size_t struct_bytes;
  int always;          // 1: all calls that the plan suits. 0: those for which the cost model has times of the plan that
                       // are shorter than those of the built-in way, if the plan has the same results: sums of
                       // floating-point values are added in rank order and rounded once, and codecs are exact
  uint64_t min_bytes;  // of the call's `count` values; default: 0. The limits of the plan itself apply too
  uint64_t max_bytes;  // default: no limit
} ncast_plan_use;
// From now on, the calls of the plan's operation, root, type and reduction run the plan if `use` says so, as if they
// were ncast_loaded_plan_run, but also in groups. Where several plans are used, the first one that is `always` precedes
// those that are faster. All ranks call it with the same arguments, at the same position in the sequence of the
// communicator's calls; it does not wait for them. It ends when the plan is destroyed, which is then also at the same
// position on all ranks. use: NULL: all defaults.
// A plan that only works in place, or only out of place, runs only calls that are so. As each rank knows this of itself
// only, such a call must be made alike on all ranks; otherwise it fails with NCAST_MISMATCH.
// Errors: INVALID_ARGUMENT; UNSUPPORTED for such plans of operations with a root, and, on GPUs, for plans that let
// other ranks access inputs or outputs: whether a call is suitable would not be known to all ranks.
NCAST_API ncast_status ncast_loaded_plan_use(ncast_loaded_plan* loaded, const ncast_plan_use* use);

// Where the input and the output of a call are.
enum {
  NCAST_PLACEMENT_UNKNOWN = 0,   // also of operations whose input or output some ranks do not have
  NCAST_PLACEMENT_SEPARATE = 1,  // in different memory
  NCAST_PLACEMENT_IN_PLACE = 2   // in the same memory, as comm.h says for each operation
};

// Selectors: functions of the user that choose how calls run. The host backend can run its calls with the plans of
// several builders, and costs choose between them, the plans in use and the built-in way unless a selector does.

// A call, as selectors see it. Later versions append members.
typedef struct {
  size_t struct_bytes;  // set by the library
  ncast_operation operation;
  uint64_t count;  // as in the functions of comm.h
  ncast_dtype dtype;
  ncast_redop op;     // NCAST_SUM if the operation does not reduce
  int root;           // 0 if the operation has none
  ncast_codec codec;  // what the call allows
  int ranks;
  int placement;                    // NCAST_PLACEMENT_...
  const ncast_codec* result_codec;  // as in ncast_reduction_options. NULL to selectors, which such calls do not ask
} ncast_plan_call;

enum {
  NCAST_PLAN_BUILT_IN = -1,  // the built-in way
  NCAST_PLAN_BY_COST = -2    // what is predicted to be fastest, as without a selector
};
// Returns an index in `plans`, the names of `plan_count` plans (1 or more) that can run the call, or one of the
// constants above; other numbers mean NCAST_PLAN_BUILT_IN. The result must depend on the call and the names only, and
// be the same on all ranks: if ranks run different plans, their calls fail with NCAST_MISMATCH. Any thread may call it
// when a call is made, and not again for calls whose result the library remembers. It must not make calls.
typedef int (*ncast_plan_selector)(void* context, const ncast_plan_call* call, const char* const* plans,
                                   int plan_count);
// Explains a call of this communicator, as ncast_comm_explain, for its reduction and root. call: the member `ranks` is
// ignored.
NCAST_API ncast_status ncast_comm_explain_call(ncast_comm* comm, const ncast_plan_call* call,
                                               ncast_explanation** explanation);
// As ncast_predictor_compare, for a reduction and a root.
NCAST_API ncast_status ncast_predictor_compare_call(const ncast_predictor* predictor, const ncast_plan_call* call,
                                                    int with_windows, ncast_comparison* comparison);
// As ncast_comm_explain_call, for a predictor, which needs no communicator.
NCAST_API ncast_status ncast_predictor_explain_call(const ncast_predictor* predictor, const ncast_plan_call* call,
                                                    ncast_explanation** explanation);
// Lets a predictor that was made without a communicator assume that a plan is used, if it can be. Errors: those of
// ncast_plan_load that concern the plan, and of ncast_loaded_plan_use.
NCAST_API ncast_status ncast_predictor_use_plan(ncast_predictor* predictor, const ncast_plan* plan, ncast_dtype dtype,
                                                ncast_redop op, const ncast_plan_use* use);

// Sets the selector of a communicator. All ranks call it at the same position in the sequence of the communicator's
// calls; it does not wait for them. NULL: costs decide.
NCAST_API ncast_status ncast_comm_set_plan_selector(ncast_comm* comm, ncast_plan_selector selector, void* context);
// Sets the selector that communicators get when they are created in this process from now on, also those of the drop-in
// for NCCL. NULL: none.
NCAST_API void ncast_set_plan_selector(ncast_plan_selector selector, void* context);

// Builders: the plans of known algorithms. Set struct_bytes to sizeof(ncast_plan_builder) before the call. Later
// versions append members. Strings live as long as the program.
typedef struct {
  size_t struct_bytes;
  const char* name;     // "ring"
  const char* text;     // what the algorithm does
  uint64_t operations;  // bit i: it has a plan for ncast_operation i
} ncast_plan_builder;
NCAST_API int ncast_plan_builder_count(void);
// Error: INVALID_ARGUMENT.
NCAST_API ncast_status ncast_plan_builder_describe(int index, ncast_plan_builder* builder);

// What to build. Members that are 0 have their default.
typedef struct {
  size_t struct_bytes;  // sizeof(ncast_plan_request)
  ncast_operation operation;
  int ranks;
  int root;            // of operations that have one
  ncast_codec codec;   // of all messages; not AUTO
  uint32_t depth;      // messages that every ring holds; default 4
  int ranks_per_node;  // only for two_level: a divisor of ranks, 1 by default
} ncast_plan_request;
// Builds the plan of the algorithm `name`. Destroy it with ncast_plan_destroy. Errors: INVALID_ARGUMENT for an unknown
// name, an operation that the algorithm does not suit, and numbers out of range.
NCAST_API ncast_status ncast_plan_build(const char* name, const ncast_plan_request* request, ncast_plan** plan);

// How a plan is verified. All zeros are the defaults.
typedef struct {
  size_t struct_bytes;  // sizeof(ncast_plan_verify_options)
  uint32_t depth;       // of every ring; 0: as the plan states
} ncast_plan_verify_options;

// Proves or refutes a plan: no deadlock, no race, the right result (docs/design/plans.md, "What is proved"). The plan
// is verified as it is: lower it first.
//   options: may be NULL.
//   report: JSON, also if the plan is refuted. Keys:
//     verdict: "proved", "refuted" or "unsupported"
//     property, rank, group, step, body (in a loop), origin, message, trace: the fault; null where they do not apply
//     least_depth, depth_needed_when_split: of rings
//     split_ok; split: the fault that is only there when messages are split
//     roundings, inexact_encodings: how often a value is rounded, at most; rank_order, same_everywhere: of the results
//     steps, seconds
//   Destroy the text with ncast_text_destroy.
// Error: INVALID_ARGUMENT.
NCAST_API ncast_status ncast_plan_verify(const ncast_plan* plan, const ncast_plan_verify_options* options,
                                         ncast_text** report);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_PLAN_H_
