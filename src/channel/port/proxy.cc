#include "channel/port/proxy.h"

#include <string>
#include <utility>

#include "bootstrap/background_thread.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Kernels cannot wake a thread that sleeps, so it looks by itself: all the time while there is something to do and a
// little longer, then now and then, which costs a request that comes after a pause so much time.
constexpr milliseconds awake_for{2};
constexpr microseconds short_nap{20};
constexpr milliseconds napping_for{1000};
constexpr milliseconds long_nap{2};

}  // namespace

PortProxy::~PortProxy() {
  {
    const std::lock_guard lock(mutex_);
    quits_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

ncast_status PortProxy::add(PortService* service) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable())
      if (ncast_status status = bootstrap::start_background_thread("ncast-proxy", [this] { run(); }, &thread_))
        return status;
    messages_.push_back({service, false});
  }
  changed_.notify_all();
  return NCAST_OK;
}

bool PortProxy::remove(PortService* service) {
  std::future<bool> gone;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    gone = messages_.emplace_back(Message{service, true}).gone.get_future();
  }
  changed_.notify_all();
  return gone.get();
}

void PortProxy::run() {
  set_up_();
  bootstrap::Clock::time_point last_moved = bootstrap::Clock::now();
  while (read_messages() && !is_stopped()) {
    bool moved = false;
    if (ncast_status status = serve_all(&moved)) {
      const std::string sentence = ncast_last_error();
      failed_(status, sentence.c_str());
      break;
    }
    let_go();
    const bootstrap::Clock::time_point now = bootstrap::Clock::now();
    if (moved) last_moved = now;
    rest(now - last_moved);
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (std::vector<Message>* messages : {&going_, &messages_})
    for (Message& message : *messages)
      if (message.goes) message.gone.set_value(false);
}

ncast_status PortProxy::serve_all(bool* moved) {
  for (PortService* service : services_) {
    bool its_moved = false;
    if (ncast_status status = service->serve(&its_moved)) return status;
    *moved = *moved || its_moved;
  }
  return NCAST_OK;
}

bool PortProxy::read_messages() {
  const std::lock_guard lock(mutex_);
  for (Message& message : messages_) {
    if (message.goes) {
      going_.push_back(std::move(message));
    } else {
      services_.push_back(message.service);
    }
  }
  messages_.clear();
  return !quits_;
}

void PortProxy::let_go() {
  std::erase_if(going_, [&](Message& message) {
    if (!message.service->is_idle()) return false;
    std::erase(services_, message.service);
    message.gone.set_value(true);
    return true;
  });
}

void PortProxy::rest(bootstrap::Clock::duration idle) {
  if (idle < awake_for && !services_.empty()) return std::this_thread::yield();
  std::unique_lock lock(mutex_);
  const auto is_wanted = [&] { return quits_ || !messages_.empty(); };
  if (services_.empty()) return changed_.wait(lock, is_wanted);
  changed_.wait_for(lock,
                    idle < napping_for ? bootstrap::Clock::duration(short_nap) : bootstrap::Clock::duration(long_nap),
                    is_wanted);
}

}  // namespace narrowcast::channel
