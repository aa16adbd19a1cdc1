// libnarrowcast.so, loaded when a communicator is first used.
#pragma once

#include <string>

#include "narrowcast/codec.h"
#include "narrowcast/comm.h"
#include "narrowcast/explain.h"
#include "narrowcast/plan.h"
#include "narrowcast/reduction.h"
#include "nccl/abi/call.h"

namespace narrowcast::nccl {

struct Engine {
#define ENGINE_FUNCTIONS(FUNCTION)      \
  FUNCTION(version)                     \
  FUNCTION(last_error)                  \
  FUNCTION(bound)                       \
  FUNCTION(encode)                      \
  FUNCTION(decode)                      \
  FUNCTION(comm_config_defaults)        \
  FUNCTION(comm_create_by_exchange)     \
  FUNCTION(comm_destroy)                \
  FUNCTION(comm_abort)                  \
  FUNCTION(comm_call_error)             \
  FUNCTION(comm_get_counters)           \
  FUNCTION(comm_get_operation_counters) \
  FUNCTION(comm_predictor)              \
  FUNCTION(predictor_create)            \
  FUNCTION(predictor_compare_call)      \
  FUNCTION(predictor_use_plan)          \
  FUNCTION(predictor_costs_warning)     \
  FUNCTION(predictor_destroy)           \
  FUNCTION(plan_read)                   \
  FUNCTION(plan_describe)               \
  FUNCTION(plan_load)                   \
  FUNCTION(loaded_plan_use)             \
  FUNCTION(loaded_plan_destroy)         \
  FUNCTION(comm_explain)                \
  FUNCTION(comm_set_costs)              \
  FUNCTION(explanation_decision)        \
  FUNCTION(explanation_destroy)         \
  FUNCTION(kernels_hash)                \
  FUNCTION(group_start)                 \
  FUNCTION(group_end)                   \
  FUNCTION(send)                        \
  FUNCTION(recv)                        \
  FUNCTION(broadcast)                   \
  FUNCTION(reduce)                      \
  FUNCTION(gather)                      \
  FUNCTION(scatter)                     \
  FUNCTION(all_gather)                  \
  FUNCTION(all_to_all)                  \
  FUNCTION(reduce_scatter)              \
  FUNCTION(all_reduce)                  \
  FUNCTION(run_reduction)
#define DECLARE(name) decltype(&::ncast_##name) ncast_##name;
  ENGINE_FUNCTIONS(DECLARE)
#undef DECLARE
};

// NULL: it could not be loaded, which has been logged.
const Engine* engine();

// Sets the limits of CTAs. max_ctas: environment::unset_ctas if neither the user nor the program has set a limit. Then
// long collectives have one, because they usually run beside compute, which would lose more SMs than to NCCL.
void limit_ctas(uint32_t max_ctas, ncast_comm_config* config);
// A communicator configuration with the values of the settings.
ncast_comm_config config_from_settings(const Engine& narrowcast);

// How the engine runs a call with this codec; constants of the engine. Empty if it cannot say.
struct Explained {
  std::string candidate, link;
};
Explained explain(ncast_comm* comm, Operation operation, size_t count, ncast_dtype dtype, ncast_codec codec);

// Makes a call on a communicator of the engine.
ncast_status run_on_engine(const Call& call, ncast_codec codec, std::optional<ncast_codec> result_codec,
                           ncast_comm* comm, CudaStream stream);

// The ncclResult_t for a status of the engine.
Result result_of(ncast_status status);
// Stores the engine's last error message for ncclGetLastError, logs it, and returns the ncclResult_t.
int report_engine_error(ncast_status status, const char* where);

}  // namespace narrowcast::nccl
