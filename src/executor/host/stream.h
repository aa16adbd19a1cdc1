// Streams of the host backend. A stream is a thread that runs calls in order.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "narrowcast/types.h"

namespace narrowcast::executor::host {

class Stream {
 public:
  struct Work {
    std::function<ncast_status()> run;
    std::function<void()> abort;  // makes run() end soon, before or while it runs; any thread
  };

  // Error: SYSTEM_ERROR.
  static ncast_status create(std::shared_ptr<Stream>* stream);
  // Runs the remaining work first.
  ~Stream();

  void enqueue(Work work);

  // Waits until all work has run. ABORTED if this thread was interrupted: the remaining work is aborted, and may still
  // run.
  ncast_status drain();

  // As drain(), and returns the first error since the previous call.
  ncast_status synchronize();

  // True in a forked child of the process that created the stream: it has no copy of the thread.
  bool forked() const;

  // The stream of a handle, or NULL if this process has no such stream.
  static std::shared_ptr<Stream> find(ncast_stream handle);
  static ncast_stream add(std::shared_ptr<Stream> stream);
  static std::shared_ptr<Stream> remove(ncast_stream handle);

 private:
  Stream();
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;  // the first one is running
  bool closing_ = false;
  ncast_status error_ = NCAST_OK;
  std::string message_;
  const pid_t pid_;
  std::thread thread_;
};

// The error of a handle that Stream::find() does not know.
ncast_status no_such_stream(const char* function, ncast_stream stream);

}  // namespace narrowcast::executor::host
