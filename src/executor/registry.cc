#include "executor/registry.h"

#include <pthread.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "bootstrap/interrupt.h"
#include "status/error.h"

namespace narrowcast::executor {
namespace {

struct CommState {
  int uses = 0;
  bool is_closing = false;  // the communicator is being destroyed
  int forks = 0;            // Registry::forks when it was created
};

struct Registry {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const ncast_comm*, CommState> comms;
  int forks = 0;  // the number of forks between the original process and this one

  // The caller holds the mutex. NULL if there is no such communicator.
  CommState* find(const ncast_comm* comm) {
    const auto found = comms.find(comm);
    return found == comms.end() ? nullptr : &found->second;
  }
  // Whether a parent process created the communicator. Its threads do not exist in this process.
  bool is_inherited(const CommState& state) const { return state.forks != forks; }
};

// Never destroyed: threads that use communicators may outlive static objects.
Registry& registry() {
  static Registry& instance = *[] {
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                     ++registry().forks;
                     registry().mutex.unlock();
                   });
    return new Registry;
  }();
  return instance;
}

ncast_status reject(const char* function, const ncast_comm* comm, const CommState* state) {
  if (comm == nullptr) return null_argument(function, "comm");
  return fail(
      NCAST_INVALID_ARGUMENT,
      state == nullptr ? "%s: comm %p is not a communicator or has been destroyed" : "%s: comm %p is being destroyed",
      function, static_cast<const void*>(comm));
}

}  // namespace

ncast_status CommUse::begin(const char* function, const ncast_comm* comm, bool allow_closing) {
  const std::lock_guard lock(registry().mutex);
  CommState* const state = registry().find(comm);
  if (state == nullptr || (state->is_closing && !allow_closing)) return reject(function, comm, state);
  if (registry().is_inherited(*state)) {
    return fail(NCAST_UNSUPPORTED, "%s: this process was forked from the one that created comm %p", function,
                static_cast<const void*>(comm));
  }
  ++state->uses;
  comm_ = comm;
  return NCAST_OK;
}

ncast_status CommUse::begin_same(const char* function, const ncast_comm* comm, uint64_t number) {
  if (ncast_status status = begin(function, comm)) return status;
  return comm->number() == number ? NCAST_OK : reject(function, comm, nullptr);
}

CommUse::~CommUse() {
  if (comm_ == nullptr) return;
  const std::lock_guard lock(registry().mutex);
  CommState* const state = registry().find(comm_);
  if (--state->uses == 0 && state->is_closing) registry().changed.notify_all();
}

void add_communicator(const ncast_comm* comm) {
  const std::lock_guard lock(registry().mutex);
  registry().comms[comm].forks = registry().forks;
}

ncast_status destroy_communicator(const char* function, ncast_comm* comm) {
  std::unique_lock lock(registry().mutex);
  CommState* const state = registry().find(comm);
  if (state == nullptr || state->is_closing) return reject(function, comm, state);
  if (registry().is_inherited(*state)) {
    // Do not free it: its destructor would affect resources that are shared with the parent and the other ranks.
    registry().comms.erase(comm);
    return NCAST_OK;
  }
  const auto is_unused = [state] { return state->uses == 0; };
  const uint64_t interruptions = bootstrap::interruptions();
  // From here on no function can begin to use the communicator, so it stays idle once it is.
  state->is_closing = true;
  if (!bootstrap::wait_or_interrupt(registry().changed, lock, is_unused)) {
    lock.unlock();
    static_cast<void>(comm->abort());
    lock.lock();
    registry().changed.wait(lock, is_unused);
  }
  lock.unlock();
  const ncast_status status = comm->wait_until_idle();
  const std::string message = status == NCAST_OK ? "" : ncast_last_error();
  comm->leave_ranks();
  lock.lock();
  // The abort that ended its calls may not have returned yet, so wait again.
  registry().changed.wait(lock, is_unused);
  registry().comms.erase(comm);
  lock.unlock();
  delete comm;
  if (bootstrap::interruptions() != interruptions) return bootstrap::interrupted();
  return status == NCAST_OK ? NCAST_OK : fail(status, "%s", message.c_str());
}

}  // namespace narrowcast::executor
