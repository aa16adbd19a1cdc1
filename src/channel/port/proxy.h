// The proxy: a thread of a rank that serves the requests that its kernels post to ports.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "channel/port/service.h"

namespace narrowcast::channel {

class PortProxy {
 public:
  // stop: the thread ends when this word becomes nonzero; any thread may set it. set_up: called once, at the start of
  // the thread. failed: called from the thread if a service fails; the thread then ends.
  PortProxy(const uint32_t* stop, std::function<void()> set_up, std::function<void(ncast_status, const char*)> failed)
      : stop_(stop), set_up_(std::move(set_up)), failed_(std::move(failed)) {}
  // Ends the thread. Requests that are not complete are abandoned.
  ~PortProxy();

  // Begins to serve a service. The first call starts the thread. Any thread. Errors: SYSTEM_ERROR.
  ncast_status add(PortService* service);

  // Waits until all requests of the service are complete and stops serving it. Returns false if the thread has ended,
  // possibly before all requests were served. Any thread.
  bool remove(PortService* service);

 private:
  // A command to the thread: add the service, or remove it once it is idle.
  struct Command {
    PortService* service;
    bool remove;
    std::promise<bool> removed = {};
  };

  void run();
  ncast_status serve_all(bool* progressed);
  bool read_commands();  // false: the thread must end
  void finish_removals();
  void sleep(bootstrap::Clock::duration idle);
  bool is_stopped() const { return __atomic_load_n(stop_, __ATOMIC_ACQUIRE) != 0; }

  const uint32_t* const stop_;
  const std::function<void()> set_up_;
  const std::function<void(ncast_status, const char*)> failed_;

  // Used by the thread only. The thread holds no lock while it serves, because a busy thread would starve other users
  // of the lock.
  std::vector<PortService*> services_;
  std::vector<Command> removals_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<Command> commands_;
  bool stopping_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace narrowcast::channel
