// The proxy: a thread of a rank that serves what its kernels ask for through ports.
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
  // stop: once it is not 0 nothing is served any more; written from anywhere. set_up: called first in the thread.
  // failed: called from it when a service fails, which ends it.
  PortProxy(const uint32_t* stop, std::function<void()> set_up, std::function<void(ncast_status, const char*)> failed)
      : stop_(stop), set_up_(std::move(set_up)), failed_(std::move(failed)) {}
  // No service is left, or none will be used any more.
  ~PortProxy();

  // Serves it from now on. The first one starts the thread. Any thread. Errors: SYSTEM_ERROR.
  ncast_status add(PortService* service);

  // Returns when every request of the service is complete, and then does not use it any more. False: the thread has
  // come to its end, with requests that it had not begun. Any thread.
  bool remove(PortService* service);

 private:
  // To the thread: a service that comes, or that goes once it is idle.
  struct Message {
    PortService* service;
    bool goes;
    std::promise<bool> gone = {};
  };

  void run();
  ncast_status serve_all(bool* moved);
  bool read_messages();  // false: the thread has to end
  void let_go();
  void rest(bootstrap::Clock::duration idle);
  bool is_stopped() const { return __atomic_load_n(stop_, __ATOMIC_ACQUIRE) != 0; }

  const uint32_t* const stop_;
  const std::function<void()> set_up_;
  const std::function<void(ncast_status, const char*)> failed_;

  // The thread's own. No lock is held while it serves: whoever wants one would starve.
  std::vector<PortService*> services_;
  std::vector<Message> going_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Message> messages_;
  bool quits_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace narrowcast::channel
