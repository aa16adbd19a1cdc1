#include "collective/launch.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "collective/engine.h"
#include "collective/operations.h"
#include "collective/stream.h"
#include "status/error.h"

namespace narrowcast::collective {
namespace {

struct Group {
  int depth = 0;
  std::vector<Call> calls;
  ncast_status error = NCAST_OK;
  std::string sentence;
};

thread_local Group open_group;

// Tickets of several communicators, and places on several streams, are taken together or two launches could wait for
// each other.
std::mutex launch_mutex;

// Calls that run together, once each of their streams has come to them.
class Job {
 public:
  Job(std::vector<Call> calls, std::vector<ncast_comm*> comms, size_t streams)
      : calls_(std::move(calls)), comms_(std::move(comms)), missing_streams_(streams) {
    tickets_.reserve(comms_.size());  // taking one must not fail between two
  }

  void take_tickets() {
    for (ncast_comm* comm : comms_) tickets_.push_back(comm->take_ticket());
  }

  // Called once for each stream. The last to arrive runs the calls, the others wait for it.
  ncast_status arrive() {
    std::unique_lock lock(mutex_);
    if (--missing_streams_ == 0) {
      lock.unlock();
      const ncast_status status = run_in_turn();
      lock.lock();
      status_ = status;
      if (status != NCAST_OK) sentence_ = ncast_last_error();
      done_ = true;
      arrived_.notify_all();
    } else {
      arrived_.wait(lock, [this] { return done_; });
    }
    return status_ == NCAST_OK ? NCAST_OK : fail(status_, "%s", sentence_.c_str());
  }

 private:
  ncast_status run_in_turn() {
    for (size_t i = 0; i < comms_.size(); ++i) comms_[i]->wait_for_turn(tickets_[i]);
    for (ncast_comm* comm : comms_) comm->world->enter_call();
    const char* function = calls_.size() == 1 ? function_name(calls_[0].operation) : "ncast_group_end";
    ncast_status status = guarded(function, [this] { return run(calls_); });
    if (status != NCAST_OK) {
      const std::string sentence = ncast_last_error();
      for (ncast_comm* comm : comms_) comm->set_error(status, sentence.c_str());
      status = fail(status, "%s: %s", function, sentence.c_str());
    }
    for (ncast_comm* comm : comms_) {
      comm->count_calls(static_cast<uint64_t>(std::ranges::count(calls_, comm, &Call::comm)));
      comm->world->leave_call();
      comm->end_turn();  // the communicator may be gone from here on
    }
    return status;
  }

  std::vector<Call> calls_;
  std::vector<ncast_comm*> comms_;
  std::vector<uint64_t> tickets_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  size_t missing_streams_;
  bool done_ = false;
  ncast_status status_ = NCAST_OK;
  std::string sentence_;
};

template <typename T>
void add_once(std::vector<T>& list, T value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(std::move(value));
}

ncast_status launch(std::vector<Call> calls) {
  if (ncast_status status = check_sends_to_oneself(calls)) return status;
  std::vector<ncast_comm*> comms;
  std::vector<std::shared_ptr<Stream>> streams;
  bool here = false;  // a call is on the NULL stream
  for (const Call& call : calls) {
    add_once(comms, call.comm);
    if (call.stream == nullptr) {
      here = true;
    } else if (std::shared_ptr<Stream> stream = Stream::find(call.stream)) {
      add_once(streams, stream);
    } else {
      return fail(NCAST_INVALID_ARGUMENT, "%s: stream %p is not one that ncast_stream_create made",
                  function_name(call.operation), call.stream);
    }
  }
  for (ncast_comm* comm : comms) {
    if (ncast_status status = comm->check_error()) {
      const std::string sentence = ncast_last_error();
      return fail(status, "the communicator is in error since an earlier call: %s", sentence.c_str());
    }
  }
  const auto job = std::make_shared<Job>(std::move(calls), comms, streams.size() + (here ? 1 : 0));
  {
    const std::lock_guard lock(launch_mutex);
    job->take_tickets();
    for (const auto& stream : streams) stream->enqueue([job] { return job->arrive(); });
  }
  return here ? job->arrive() : NCAST_OK;
}

}  // namespace

ncast_status submit(const Call& call) {
  if (open_group.depth > 0) {
    open_group.calls.push_back(call);
    return NCAST_OK;
  }
  return launch({call});
}

ncast_status reject(ncast_status status) {
  if (open_group.depth > 0 && open_group.error == NCAST_OK) {
    open_group.error = status;
    open_group.sentence = ncast_last_error();
  }
  return status;
}

ncast_status start_group() {
  ++open_group.depth;
  return NCAST_OK;
}

ncast_status end_group() {
  if (open_group.depth == 0) {
    return fail(NCAST_INVALID_ARGUMENT, "ncast_group_end: no group is open on this thread");
  }
  if (--open_group.depth > 0) return NCAST_OK;
  const Group group = std::exchange(open_group, {});
  if (group.error != NCAST_OK) {
    return fail(group.error, "ncast_group_end: nothing was run, as a call of the group failed: %s",
                group.sentence.c_str());
  }
  return group.calls.empty() ? NCAST_OK : launch(group.calls);
}

bool is_in_open_group(const ncast_comm* comm) {
  return std::ranges::find(open_group.calls, comm, &Call::comm) != open_group.calls.end();
}

}  // namespace narrowcast::collective
