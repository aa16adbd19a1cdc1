// Streams of the host backend: a thread that runs calls in order.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "narrowcast/comm.h"

namespace narrowcast::executor::host {

class Stream {
 public:
  using Work = std::function<ncast_status()>;

  Stream();
  // Runs what is left first.
  ~Stream();

  void enqueue(Work work);

  // Waits until nothing is left.
  void drain();

  // As drain(), and returns the first error since the last time.
  ncast_status synchronize();

  // In a child that was forked from the process that made it: there is no thread.
  bool forked() const;

  // The stream behind a handle, or none when no living stream of this process has it.
  static std::shared_ptr<Stream> find(ncast_stream handle);
  static ncast_stream add(std::shared_ptr<Stream> stream);
  static std::shared_ptr<Stream> remove(ncast_stream handle);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool busy_ = false;
  bool closing_ = false;
  ncast_status error_ = NCAST_OK;
  std::string sentence_;
  const pid_t pid_;
  std::thread thread_;  // last: it uses the others
};

// The error of a handle that Stream::find() does not know.
ncast_status no_such_stream(const char* function, ncast_stream stream);

}  // namespace narrowcast::executor::host
