// The state of the drop-in for each communicator of NCCL.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl/abi/nccl_types.h"
#include "nccl/libraries/engine.h"
#include "nccl/policy/cost_prediction.h"
#include "nccl/policy/decision.h"
#include "nccl/ranks/call_timer.h"
#include "nccl/ranks/communicator_config.h"
#include "nccl/ranks/launch_timer.h"
#include "nccl/ranks/pair_handshake.h"
#include "nccl/ranks/stream_order.h"
#include "nccl/report/call_record.h"
#include "nccl/report/statistics.h"

namespace narrowcast::nccl {

struct Communicator {
  Communicator(Comm handle, int rank, int ranks, int device, CommunicatorConfig config);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  bool attached() const { return engine_comm != nullptr; }
  // Sends every later call to NCCL. `why` must be a string constant.
  void forward_all(const char* why) { why_forwarded.store(why); }
  // Ends the engine's calls and a running exchange between the ranks, so that NCCL may free the handle. Any thread.
  void abort();
  // The statistics do not count what this new communicator of the engine has sent so far.
  void mark_traffic(ncast_comm* created);
  // Updates the statistics from the engine's counters. Streams may be in capture.
  void refresh_traffic();

  const Comm handle;
  const int rank, ranks, device;
  const CommunicatorConfig config;
  const std::shared_ptr<Statistics> statistics;
  std::atomic<const char*> why_forwarded{nullptr};
  std::atomic<bool> aborted{false};
  // This rank failed while the ranks exchanged bytes. It refuses all later calls: the others may run calls on the
  // engine that it cannot join.
  std::atomic<bool> broken{false};
  std::timed_mutex exchanging;           // held while the ranks exchange bytes
  bool blocking = true;                  // false once a call has returned ncclInProgress
  bool attaches_at_creation = false;     // NARROWCAST_ATTACH=init applies to it
  std::atomic<bool> has_windows{false};  // symmetric windows are registered; the same on all ranks

  std::mutex preparing;  // held by the thread on whose call the ranks agree or attach
  bool agreed = false;   // the ranks have compared their settings
  uint64_t id = 0;       // after agreeing: the same on all ranks
  // After agreeing: 0 if all ranks are on one host; otherwise the same number for communicators whose ranks are on the
  // same hosts, in the same order.
  uint64_t hosts = 0;
  int ranks_of_group = 0;                                   // after agreeing: of two levels, if the ranks form them
  bool has_levels = false;                                  // after attaching: engine_comm has two levels
  int local_ranks = 1;                                      // after agreeing: ranks in this process
  std::atomic<uint32_t> max_ctas{environment::unset_ctas};  // after agreeing: the minimum over all ranks
  std::unique_ptr<PairHandshake> handshake;    // for two ranks, until their first common call; under `preparing`
  std::atomic<bool> handshake_pending{false};  // until that call is prepared
  std::atomic<ncast_comm*> engine_comm{nullptr};
  TrafficByOperation uncounted_traffic = {};  // set before engine_comm
  std::vector<ncast_loaded_plan*> plans;      // that calls on engine_comm may run
  std::atomic<bool> captured{false};          // a CUDA graph may hold calls on engine_comm
  bool attaches_at_resume = false;            // ncclCommSuspend has destroyed engine_comm

  // Freed only with the communicator: cuMemFree waits for all work on the GPU, which may depend on a rank that waits
  // for this one.
  void* exchange_memory = nullptr;
  void* exchange_stream = nullptr;
  void* side_stream = nullptr;  // for transfers on the engine that run concurrently with forwarded ones
  void* side_event = nullptr;
  StreamOrder order;
  CallTimer timer;
  CommunicatorRecord record;
  LaunchTimer launch_timer;

  // Created when first needed, and again after a change of max_ctas or engine_comm. Used by the thread that makes a
  // call.
  std::unique_ptr<EnginePredictor> predictor;
};

// What decisions about its calls depend on.
CommunicatorTraits traits_of(const Communicator& comm);

// Predicts calls of this communicator on the engine.
const EnginePredictor& predictor_of(Communicator& comm);

// Stores the configuration and handshake of a new communicator until its first call. NULL handles are ignored.
void remember_config(Comm handle, const CommunicatorConfig& config);
void remember_handshake(Comm handle, std::unique_ptr<PairHandshake> handshake);

// The configuration of a communicator, also before its first call; defaults for unknown handles.
CommunicatorConfig config_of(Comm handle);

// The communicator of a handle; NULL if it has had no call.
std::shared_ptr<Communicator> known_communicator(Comm handle);
// As known_communicator(), but adds the handle to the table if necessary; NULL if NCCL rejects the handle.
std::shared_ptr<Communicator> find_or_add_communicator(Comm handle);
// Removes the handle from the table, before NCCL frees it; NULL if it has had no call.
std::shared_ptr<Communicator> remove_communicator(Comm handle);
// Makes the process write the statistics of all communicators at exit.
void schedule_statistics();

}  // namespace narrowcast::nccl
