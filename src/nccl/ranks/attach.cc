#include "nccl/ranks/attach.h"

#include <utility>
#include <vector>

#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/policy/decision.h"
#include "nccl/policy/plans.h"
#include "nccl/ranks/agreement.h"
#include "nccl/ranks/calibrate.h"
#include "nccl/ranks/deferred_destroy.h"
#include "nccl/ranks/exchange.h"
#include "nccl/ranks/left_hosts.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// A rank may fail before it joins. The others then give up and leave the communicator to NCCL.
constexpr double create_timeout_seconds = 60;

constexpr size_t least_tried_bytes = 4 << 10, most_tried_bytes = size_t{1} << 30;
constexpr const char* slower_than_nccl = "no call is predicted to be faster than in NCCL between its hosts";

ncast_comm_config engine_config(const Communicator& comm) {
  ncast_comm_config config = config_from_settings(*engine());
  config.device = comm.device;
  limit_ctas(comm.max_ctas.load(), &config);
  config.timeout_seconds = 0;  // unlimited, as in NCCL
  config.create_timeout_seconds = create_timeout_seconds;
  return config;
}

bool has_side_stream(Communicator& comm) {
  return (comm.side_stream != nullptr || driver()->cuStreamCreate(&comm.side_stream, stream_non_blocking) == 0) &&
         (comm.side_event != nullptr || driver()->cuEventCreate(&comm.side_event, event_without_time) == 0);
}

// Loads the plans of the settings, with the same result on every rank. Calls use those that could be loaded.
void load_plans(Communicator& comm, ncast_comm* created) {
  const Engine& narrowcast = *engine();
  for (const PlanForCalls& one : plans_for(comm.ranks, comm.config.name)) {
    ncast_loaded_plan* loaded = nullptr;
    if (narrowcast.ncast_plan_load(created, one.plan, one.dtype, one.redop, &loaded) != NCAST_OK) {
      log_unused(one, narrowcast.ncast_last_error());
      continue;
    }
    comm.plans.push_back(loaded);
    if (narrowcast.ncast_loaded_plan_use(loaded, &one.use) != NCAST_OK) {
      log_unused(one, narrowcast.ncast_last_error());
    } else {
      log(Level::info, "rank %d of %d uses the plan '%s' of %s", comm.rank, comm.ranks, one.name,
          one.file->path.c_str());
    }
  }
}

// Whether the engine runs any calls, by settings or predictions. The same on every rank.
bool takes_any_call(Communicator& comm) {
  const CommunicatorTraits traits = traits_of(comm);
  for (int operation = 0; operation < operation_count; ++operation)
    for (int dtype = 0; dtype < value_types; ++dtype)
      for (size_t bytes = least_tried_bytes; bytes <= most_tried_bytes; bytes *= 4) {
        const Call call{.function = Function::AllReduce,  // decisions do not depend on it
                        .operation = static_cast<Operation>(operation),
                        .count = bytes / value_bytes(dtype),
                        .dtype = dtype};
        if (decide(settings(), call, traits, predictor_of(comm)).use_engine) return true;
      }
  return false;
}

// The calls of the communicator are complete, unless it was aborted.
void destroy_engine_comm(Communicator& comm) {
  ncast_comm* const engine_comm = comm.engine_comm.load();
  // Wait now: the destruction may be deferred until the last rank of this process destroys its communicator.
  if (!comm.aborted.load()) comm.order.synchronize();
  comm.refresh_traffic();
  comm.engine_comm.store(nullptr);
  std::vector<ncast_loaded_plan*> plans = std::exchange(comm.plans, {});
  if (comm.aborted.load())
    defer_destroy(engine_comm, std::move(plans));
  else
    destroy_with_local_ranks({comm.id, comm.local_ranks, comm.device, engine_comm, std::move(plans)});
}

}  // namespace

void attach(Communicator& comm) {
  const DeviceGuard guard(comm.device);
  const Engine& narrowcast = *engine();
  run_deferred();
  const ncast_comm_config config = engine_config(comm);
  ncast_comm* created = nullptr;
  const ncast_status status =
      narrowcast.ncast_comm_create_by_exchange(&created, comm.ranks, comm.rank, exchange_bytes, &comm, &config);
  if (status != NCAST_OK)
    log(Level::warn, "rank %d of %d cannot attach to its communicator: %s", comm.rank, comm.ranks,
        narrowcast.ncast_last_error());
  if (!all_ranks(comm, status == NCAST_OK)) {
    comm.forward_all("a rank could not attach to the communicator");
    if (comm.hosts != 0 && !comm.aborted.load()) leave_all_hosts();
    if (created != nullptr) narrowcast.ncast_comm_destroy(created);
    return;
  }
  comm.has_levels = explain(created, NCAST_OP_ALL_REDUCE, 1, NCAST_FLOAT32, NCAST_CODEC_RAW).link == "two_levels";
  if (!has_side_stream(comm))
    log(Level::warn, "rank %d cannot create a side stream: groups that are partly forwarded will fail", comm.rank);
  if (!calibrate(comm, created)) {
    comm.forward_all("a rank failed while costs were measured");
    narrowcast.ncast_comm_abort(created);
    narrowcast.ncast_comm_destroy(created);
    return;
  }
  comm.mark_traffic(created);
  ncast_comm_counters counters = {};
  counters.struct_bytes = sizeof counters;
  narrowcast.ncast_comm_get_counters(created, &counters);
  comm.statistics->set_scratch(counters.scratch_bytes);
  load_plans(comm, created);
  comm.engine_comm.store(created);
  comm.predictor.reset();
  // abort() may have run before engine_comm was set.
  if (comm.aborted.load()) narrowcast.ncast_comm_abort(created);
  if (comm.hosts != 0 && !takes_any_call(comm)) {
    comm.forward_all(slower_than_nccl);
    leave_hosts(comm.hosts);
    destroy_engine_comm(comm);
    comm.statistics->set_scratch(0);
    log(Level::info, "a communicator of %d ranks is left to NCCL: %s", comm.ranks, slower_than_nccl);
    return;
  }
  // Registers the exit handler again: handlers registered before the engine was loaded run after it is torn down.
  schedule_statistics();
  log(Level::info, "rank %d of %d on GPU %d is attached, with %llu MiB of GPU memory", comm.rank, comm.ranks,
      comm.device, static_cast<unsigned long long>(counters.scratch_bytes >> 20));
}

void agree_and_attach(Communicator& comm) {
  agree(comm);
  if (comm.why_forwarded.load() == nullptr) attach(comm);
}

void detach(Communicator& comm) {
  if (!comm.attached()) return;
  const DeviceGuard guard(comm.device);
  destroy_engine_comm(comm);
}

void suspend(Communicator& comm) {
  if (!comm.attached() || comm.why_forwarded.load() != nullptr) return;
  const RelaxedCaptureMode relaxed;
  const DeviceGuard guard(comm.device);
  if (!all_ranks(comm, !comm.captured.load())) {
    log(Level::info, "rank %d of %d keeps its GPU memory while suspended: CUDA graphs may use it", comm.rank,
        comm.ranks);
    return;
  }
  destroy_engine_comm(comm);
  comm.statistics->close_traffic();
  comm.statistics->set_scratch(0);
  comm.attaches_at_resume = true;
}

void resume(Communicator& comm) {
  if (!comm.attaches_at_resume || comm.why_forwarded.load() != nullptr) return;
  comm.attaches_at_resume = false;
  const RelaxedCaptureMode relaxed;
  attach(comm);
}

}  // namespace narrowcast::nccl
