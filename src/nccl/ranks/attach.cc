#include "nccl/ranks/attach.h"

#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/ranks/agreement.h"
#include "nccl/ranks/deferred_destroy.h"
#include "nccl/ranks/exchange.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// For a rank that fails before it joins: the others then leave the communicator to NCCL.
constexpr double create_timeout_seconds = 60;

}  // namespace

void attach(Communicator& comm) {
  const OnDevice on_device(comm.device);
  const Engine& narrowcast = *engine();
  empty_graveyard();
  ncast_comm_config config = config_from_settings(narrowcast);
  config.device = comm.device;
  config.timeout_seconds = 0;  // NCCL waits for ever, too
  config.create_timeout_seconds = create_timeout_seconds;
  ncast_comm* made = nullptr;
  const ncast_status status =
      narrowcast.ncast_comm_create_by_exchange(&made, comm.ranks, comm.rank, exchange_bytes, &comm, &config);
  if (status != NCAST_OK)
    log(Level::warn, "rank %d of %d cannot attach to its communicator: %s", comm.rank, comm.ranks,
        narrowcast.ncast_last_error());
  if (!all_ranks(comm, status == NCAST_OK)) {
    comm.forward_all("a rank could not attach to the communicator");
    if (made != nullptr) narrowcast.ncast_comm_destroy(made);
    return;
  }
  if (driver()->cuStreamCreate(&comm.side_stream, stream_non_blocking) != 0 ||
      driver()->cuEventCreate(&comm.side_event, event_without_time) != 0)
    log(Level::warn, "rank %d has no stream for its transfers: those that are not forwarded alone fail", comm.rank);
  ncast_comm_counters counters = {};
  counters.struct_bytes = sizeof counters;
  narrowcast.ncast_comm_get_counters(made, &counters);
  comm.statistics->set_scratch(counters.scratch_bytes);
  comm.engine_comm.store(made);
  // An abort that came in the meantime found nothing to end.
  if (comm.aborted.load()) narrowcast.ncast_comm_abort(made);
  // Once more: the engine is torn down after what was registered before it was loaded.
  schedule_statistics();
  log(Level::info, "rank %d of %d on GPU %d takes calls, with %llu MiB of its memory", comm.rank, comm.ranks,
      comm.device, static_cast<unsigned long long>(counters.scratch_bytes >> 20));
}

void agree_and_attach(Communicator& comm) {
  agree(comm);
  if (comm.why_forwarded.load() == nullptr) attach(comm);
}

void detach(Communicator& comm) {
  ncast_comm* const made = comm.engine_comm.load();
  if (made == nullptr) return;
  const OnDevice on_device(comm.device);
  // The engine may live on until the last rank of this process gives up its part; what it was asked for is done by then.
  if (!comm.aborted.load()) comm.order.synchronize();
  comm.refresh_sent();
  comm.engine_comm.store(nullptr);
  if (comm.aborted.load())
    bury(made);
  else
    retire({comm.id, comm.ranks_here, comm.device, made});
}

}  // namespace narrowcast::nccl
