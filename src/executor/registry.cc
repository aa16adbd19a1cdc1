#include "executor/registry.h"

#include <pthread.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "status/error.h"

namespace narrowcast::executor {
namespace {

struct State {
  int uses = 0;
  bool ends = false;  // it is being destroyed
  int forks = 0;      // before it was made
};

struct Registry {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const ncast_comm*, State> comms;
  int forks = 0;  // that this process came from

  // With the mutex held. None when there is no such communicator.
  State* find(const ncast_comm* comm) {
    const auto found = comms.find(comm);
    return found == comms.end() ? nullptr : &found->second;
  }
  // A forked child has its parent's communicators too, but not the threads that were using them.
  bool is_of_parent(const State& state) const { return state.forks != forks; }
};

// Never destroyed: threads that use communicators may outlive static objects.
Registry& registry() {
  static Registry& the = *[] {
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                     ++registry().forks;
                     registry().mutex.unlock();
                   });
    return new Registry;
  }();
  return the;
}

ncast_status refuse(const char* function, const ncast_comm* comm, const State* state) {
  if (comm == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: comm is NULL", function);
  return fail(NCAST_INVALID_ARGUMENT,
              state == nullptr ? "%s: comm %p is not a communicator, or one that was destroyed"
                               : "%s: comm %p is being destroyed",
              function, static_cast<const void*>(comm));
}

}  // namespace

ncast_status CommUse::begin(const char* function, const ncast_comm* comm, bool may_end) {
  const std::lock_guard lock(registry().mutex);
  State* const state = registry().find(comm);
  if (state == nullptr || (state->ends && !may_end)) return refuse(function, comm, state);
  if (registry().is_of_parent(*state)) {
    return fail(NCAST_UNSUPPORTED, "%s: this process was forked from the one that made comm %p", function,
                static_cast<const void*>(comm));
  }
  ++state->uses;
  comm_ = comm;
  return NCAST_OK;
}

CommUse::~CommUse() {
  if (comm_ == nullptr) return;
  const std::lock_guard lock(registry().mutex);
  State* const state = registry().find(comm_);
  if (--state->uses == 0 && state->ends) registry().changed.notify_all();
}

void add_communicator(const ncast_comm* comm) {
  const std::lock_guard lock(registry().mutex);
  registry().comms[comm].forks = registry().forks;
}

ncast_status destroy_communicator(const char* function, ncast_comm* comm) {
  std::unique_lock lock(registry().mutex);
  State* const state = registry().find(comm);
  if (state == nullptr || state->ends) return refuse(function, comm, state);
  if (registry().is_of_parent(*state)) {
    // What there is of it here goes with the process: the parent and its peers still use what they share.
    registry().comms.erase(comm);
    return NCAST_OK;
  }
  const auto is_unused = [state] { return state->uses == 0; };
  // No call begins from here on, so that none is left once it is idle.
  state->ends = true;
  registry().changed.wait(lock, is_unused);
  lock.unlock();
  const ncast_status status = comm->wait_until_idle();
  const std::string sentence = status == NCAST_OK ? "" : ncast_last_error();
  comm->leave_ranks();
  lock.lock();
  // The abort that ended its calls may not have returned yet.
  registry().changed.wait(lock, is_unused);
  registry().comms.erase(comm);
  lock.unlock();
  delete comm;
  return status == NCAST_OK ? NCAST_OK : fail(status, "%s", sentence.c_str());
}

}  // namespace narrowcast::executor
