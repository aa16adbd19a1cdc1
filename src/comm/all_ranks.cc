// Creates and destroys all ranks of a communicator from one thread. The ranks wait for each other when they join and
// leave, so each one does this in its own thread.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "bootstrap/interrupt.h"
#include "comm/arguments.h"
#include "comm/create.h"
#include "executor/backend.h"
#include "executor/communicator.h"
#include "executor/driven_ranks.h"
#include "narrowcast/comm.h"
#include "status/error.h"
#include "status/system_error.h"

namespace {

using narrowcast::fail;
using narrowcast::guarded;
using narrowcast::null_argument;
namespace bootstrap = narrowcast::bootstrap;

struct Outcome {
  ncast_status status = NCAST_OK;
  std::string message;
};

// Whether the error is a consequence of another rank's failure.
bool is_remote(ncast_status status) { return status == NCAST_REMOTE_ERROR || status == NCAST_TIMEOUT; }

// Counts the ranks that still run. When the caller is interrupted, so are they.
class Countdown {
 public:
  explicit Countdown(int ranks) : running_(ranks) {}

  static int is_stopped(void* countdown) { return static_cast<Countdown*>(countdown)->stopped_ ? 1 : 0; }

  void interrupt_ranks() { stopped_ = true; }
  void end_rank() {
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }
  ncast_status wait() {
    std::unique_lock lock(mutex_);
    if (bootstrap::wait_or_interrupt(changed_, lock, [this] { return running_ == 0; })) return NCAST_OK;
    interrupt_ranks();
    return bootstrap::interrupted();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_;
  std::atomic<bool> stopped_{false};
};

// Runs action(rank) for all ranks concurrently. Returns the error of the lowest rank that failed, preferring errors
// that are not a consequence of another rank's failure. If no more threads can be started, all ranks are interrupted,
// because they would wait for those without a thread, which this thread then runs. Error: SYSTEM_ERROR. Returns ABORTED
// if this thread was interrupted.
ncast_status run_on_all(int ranks, const std::function<ncast_status(int rank)>& action) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  Countdown countdown(ranks);
  const auto run = [&](int rank) {
    const bootstrap::InterruptScope scope(Countdown::is_stopped, &countdown);
    Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    outcome.status = action(rank);
    if (outcome.status != NCAST_OK) outcome.message = ncast_last_error();
    countdown.end_rank();
  };
  ncast_status interruption = NCAST_OK;
  std::string no_thread;
  int started = 0;
  {
    std::vector<std::jthread> threads;
    threads.reserve(outcomes.size());
    try {
      for (; started < ranks; ++started) threads.emplace_back(run, started);
    } catch (const std::system_error& error) {
      no_thread = narrowcast::thread_error_text(error);
      countdown.interrupt_ranks();
      for (int rank = started; rank < ranks; ++rank) run(rank);
    }
    interruption = countdown.wait();
  }
  if (interruption != NCAST_OK) return bootstrap::interrupted();
  if (started < ranks) {
    return fail(NCAST_SYSTEM_ERROR, "cannot start a thread for rank %d of %d: %s", started, ranks, no_thread.c_str());
  }
  const Outcome* first = nullptr;
  for (const Outcome& outcome : outcomes) {
    if (outcome.status == NCAST_OK) continue;
    if (first == nullptr || (is_remote(first->status) && !is_remote(outcome.status))) first = &outcome;
  }
  return first == nullptr ? NCAST_OK : fail(first->status, "%s", first->message.c_str());
}

ncast_status check(const char* function, ncast_comm** comms, int ranks) {
  if (comms == nullptr) return null_argument(function, "comms");
  if (ranks < 1) return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d, not 1 or more", function, ranks);
  return NCAST_OK;
}

ncast_status destroy_all(ncast_comm** comms, int ranks) {
  const ncast_status status = run_on_all(ranks, [comms](int rank) { return ncast_comm_destroy(comms[rank]); });
  for (int rank = 0; rank < ranks; ++rank) comms[rank] = nullptr;
  return status;
}

ncast_status create_all(ncast_comm** comms, int ranks, const int* devices, const ncast_comm_config* given_config) {
  for (int rank = 0; rank < ranks; ++rank) comms[rank] = nullptr;
  ncast_comm_config config;
  if (ncast_status status = narrowcast::comm::read_config(given_config, &config))
    return fail(status, "ncast_comm_create_all: %s", std::string(ncast_last_error()).c_str());
  const auto config_of = [&](int rank) {
    ncast_comm_config own = config;
    own.device = devices != nullptr ? devices[rank] : rank;
    return own;
  };
  // Check all configurations before any rank waits for the others.
  for (int rank = 0; rank < ranks; ++rank)
    if (ncast_status status = narrowcast::comm::check_config(ranks, rank, config_of(rank))) return status;
  ncast_unique_id id;
  if (ncast_status status = narrowcast::comm::make_id(narrowcast::bootstrap::Reach::local, false, 0, &id))
    return status;
  const ncast_status status = run_on_all(ranks, [&](int rank) {
    if (bootstrap::is_interrupted()) return bootstrap::interrupted();
    const ncast_comm_config own = config_of(rank);
    return ncast_comm_create(&comms[rank], ranks, &id, rank, &own);
  });
  if (status == NCAST_OK) {
    const auto driven = std::make_shared<narrowcast::executor::DrivenRanks>(ranks);
    for (int rank = 0; rank < ranks; ++rank) comms[rank]->set_driven_ranks(driven);
    return NCAST_OK;
  }
  const std::string message = ncast_last_error();
  narrowcast::executor::close_hub(id, {});
  destroy_all(comms, ranks);
  return fail(status, "%s", message.c_str());
}

}  // namespace

extern "C" {

ncast_status ncast_comm_create_all(ncast_comm** comms, int ranks, const int* devices, const ncast_comm_config* config) {
  constexpr const char* function = "ncast_comm_create_all";
  return guarded(function, [&] {
    if (ncast_status status = check(function, comms, ranks)) return status;
    return create_all(comms, ranks, devices, config);
  });
}

ncast_status ncast_comm_destroy_all(ncast_comm** comms, int ranks) {
  constexpr const char* function = "ncast_comm_destroy_all";
  return guarded(function, [&] {
    if (ncast_status status = check(function, comms, ranks)) return status;
    return destroy_all(comms, ranks);
  });
}

}  // extern "C"
