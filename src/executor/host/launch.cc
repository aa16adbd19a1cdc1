#include "executor/host/launch.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/interrupt.h"
#include "executor/host/communicator.h"
#include "executor/host/engine.h"
#include "executor/host/stream.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

// A launch takes the tickets of all its communicators and its places on all its streams under this lock. Otherwise two
// launches could get them in opposite order and wait for each other.
std::mutex launch_mutex;

// Calls that run together once all their streams have reached them.
class Job {
 public:
  Job(std::vector<Call> calls, std::vector<Communicator*> comms, size_t streams)
      : calls_(std::move(calls)), comms_(std::move(comms)), missing_streams_(streams) {
    tickets_.reserve(comms_.size());  // so that take_tickets() cannot fail halfway
  }

  void take_tickets() {
    for (Communicator* comm : comms_) tickets_.push_back(comm->take_ticket());
  }

  // Called once on each stream. The last one to arrive runs the calls; the others wait for it.
  ncast_status arrive() {
    std::unique_lock lock(mutex_);
    if (--missing_streams_ == 0) {
      running_ = !cancelled_;
      lock.unlock();
      const ncast_status status = run_in_turn();
      lock.lock();
      status_ = status;
      if (status != NCAST_OK) message_ = ncast_last_error();
      done_ = true;
      arrived_.notify_all();
    } else if (!bootstrap::wait_or_interrupt(arrived_, lock, [this] { return done_; })) {
      // If no stream runs the calls yet, none will: their buffers belong to the caller again.
      cancelled_ = true;
      abort_locked();
      arrived_.wait(lock, [this] { return done_ || !running_; });
      return bootstrap::interrupted();
    }
    return status_ == NCAST_OK ? NCAST_OK : fail(status_, "%s", message_.c_str());
  }

  // Ends the calls on all ranks, unless they have ended. Any thread.
  void abort() {
    const std::lock_guard lock(mutex_);
    abort_locked();
  }

 private:
  void abort_locked() {
    if (ended_) return;  // the communicators may have been freed
    for (Communicator* comm : comms_) static_cast<void>(comm->abort());
  }

  ncast_status run_in_turn() {
    ncast_status status = NCAST_OK;
    for (size_t i = 0; i < comms_.size(); ++i) {
      if (ncast_status waited = comms_[i]->wait_for_turn(tickets_[i])) status = waited;
    }
    for (Communicator* comm : comms_) comm->world->enter_call();
    const char* function = calls_.size() == 1 ? function_of(calls_[0]) : "ncast_group_end";
    if (status == NCAST_OK) {
      status = guarded(function, [this] { return running_ ? run(calls_) : bootstrap::interrupted(); });
    }
    if (status != NCAST_OK) {
      const std::string message = ncast_last_error();
      for (Communicator* comm : comms_) comm->set_error(status, message.c_str());
      status = fail(status, "%s: %s", function, message.c_str());
    }
    for (const Call& call : calls_) communicator_of(call).count_call(call.operation);
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    for (Communicator* comm : comms_) {
      comm->world->leave_call();
      comm->end_turn();  // after this the communicator may be freed
    }
    return status;
  }

  std::vector<Call> calls_;
  std::vector<Communicator*> comms_;
  std::vector<uint64_t> tickets_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  size_t missing_streams_;
  bool cancelled_ = false;  // before all streams had reached the calls
  bool running_ = false;
  bool ended_ = false;  // abort() has no effect any more
  bool done_ = false;
  ncast_status status_ = NCAST_OK;
  std::string message_;
};

template <typename T>
void add_once(std::vector<T>& list, T value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(std::move(value));
}

}  // namespace

ncast_status launch(const std::vector<Call>& calls) {
  std::vector<Communicator*> comms;
  std::vector<std::shared_ptr<Stream>> streams;
  bool in_caller = false;  // some call is on the NULL stream, so it runs in this thread
  for (const Call& call : calls) {
    add_once(comms, &communicator_of(call));
    if (call.stream == nullptr) {
      in_caller = true;
    } else if (std::shared_ptr<Stream> stream = Stream::find(call.stream)) {
      add_once(streams, stream);
    } else {
      return no_such_stream(function_of(call), call.stream);
    }
  }
  const auto job = std::make_shared<Job>(calls, comms, streams.size() + (in_caller ? 1 : 0));
  {
    const std::lock_guard lock(launch_mutex);
    job->take_tickets();
    for (const auto& stream : streams) stream->enqueue({[job] { return job->arrive(); }, [job] { job->abort(); }});
  }
  return in_caller ? job->arrive() : NCAST_OK;
}

}  // namespace narrowcast::executor::host
