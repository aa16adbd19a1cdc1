// What the drop-in keeps of each communicator of NCCL, beside the real handle.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl/abi/nccl_types.h"
#include "nccl/libraries/engine.h"
#include "nccl/policy/decision_cache.h"
#include "nccl/ranks/pair_handshake.h"
#include "nccl/ranks/stream_order.h"
#include "nccl/report/statistics.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

struct Communicator {
  Communicator(Comm its_handle, int its_rank, int its_ranks, int its_device, std::string its_name);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  bool attached() const { return engine_comm != nullptr; }
  // From now on every call goes to NCCL; `why` is a constant sentence.
  void forward_all(const char* why) { why_forwarded.store(why); }
  // Ends the engine's calls, from any thread, and an exchange between the ranks: NCCL may then free the handle.
  void abort();
  // Brings the statistics up to date with the engine's counters. Streams may be in capture.
  void refresh_sent();

  const Comm handle;
  const int rank, ranks, device;
  const CommunicatorTraits traits;
  const std::shared_ptr<Statistics> statistics;
  std::atomic<const char*> why_forwarded{nullptr};
  std::atomic<bool> aborted{false};
  // This rank failed at what the ranks exchange before calls: the others may take calls that it cannot, so it has none any more.
  std::atomic<bool> broken{false};
  std::timed_mutex exchanging;           // held while the ranks exchange bytes
  bool blocking = true;                  // no call has returned ncclInProgress so far
  bool made_blocking = false;            // its ranks attach when it is made, for it blocks by what it is made with
  std::atomic<bool> has_windows{false};  // its ranks have registered some, which all do alike
  bool agreed = false;                   // the ranks have compared what they can and want
  std::mutex preparing;                  // held by the thread at whose call the ranks come to one mind, or to an engine
  std::unique_ptr<Meeting> meeting;    // of two ranks, until the first call that both have a part in; under `preparing`
  std::atomic<bool> will_meet{false};  // true until that call is prepared
  uint64_t id = 0;                     // the same on all ranks that have agreed
  int ranks_here = 1;                  // in this process
  std::atomic<ncast_comm*> engine_comm{nullptr};
  // Kept until the end: to free memory waits for everything on the GPU, and so maybe for a rank that waits for this one.
  void* exchange_memory = nullptr;
  void* exchange_stream = nullptr;
  void* side_stream = nullptr;  // for taken transfers beside forwarded ones
  void* side_event = nullptr;
  Order order;
  mutable RecentDecisions decisions;
};

// Keeps the name that a configuration gives the communicator that was just made, or what its ranks meet with; either may be NULL.
void keep_name(Comm handle, const Config* config);
void keep_meeting(Comm handle, std::unique_ptr<Meeting> meeting);

// The communicator of a handle that has had a call, else NULL.
std::shared_ptr<Communicator> known_communicator(Comm handle);
// As that, and takes a new one into the table; NULL when the handle is none that NCCL can tell the rank of.
std::shared_ptr<Communicator> find_communicator(Comm handle);
// Takes it out of the table, before NCCL frees the handle; NULL when it has had no call.
std::shared_ptr<Communicator> take_communicator(Comm handle);
// Has the statistics of all communicators written when the process ends.
void schedule_statistics();

}  // namespace narrowcast::nccl
