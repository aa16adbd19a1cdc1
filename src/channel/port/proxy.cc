#include "channel/port/proxy.h"

#include <string>
#include <utility>

#include "bootstrap/background_thread.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Kernels cannot wake a sleeping thread, so the thread polls: continuously until it has been idle for spin_time, then
// at intervals of short_sleep until it has been idle for short_sleep_time, then of long_sleep. The interval is the
// latency that it adds to the first request after a pause.
constexpr milliseconds spin_time{2};
constexpr microseconds short_sleep{20};
constexpr milliseconds short_sleep_time{1000};
constexpr milliseconds long_sleep{2};

}  // namespace

PortProxy::~PortProxy() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
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
    commands_.push_back({service, false});
  }
  changed_.notify_all();
  return NCAST_OK;
}

bool PortProxy::remove(PortService* service) {
  std::future<bool> removed;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    removed = commands_.emplace_back(Command{service, true}).removed.get_future();
  }
  changed_.notify_all();
  return removed.get();
}

void PortProxy::run() {
  set_up_();
  bootstrap::Clock::time_point last_progress = bootstrap::Clock::now();
  while (read_commands() && !is_stopped()) {
    bool progressed = false;
    if (ncast_status status = serve_all(&progressed)) {
      const std::string message = ncast_last_error();
      failed_(status, message.c_str());
      break;
    }
    finish_removals();
    const bootstrap::Clock::time_point now = bootstrap::Clock::now();
    if (progressed) last_progress = now;
    sleep(now - last_progress);
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (std::vector<Command>* commands : {&removals_, &commands_})
    for (Command& command : *commands)
      if (command.remove) command.removed.set_value(false);
}

ncast_status PortProxy::serve_all(bool* progressed) {
  for (PortService* service : services_) {
    bool service_progressed = false;
    if (ncast_status status = service->serve(&service_progressed)) return status;
    *progressed = *progressed || service_progressed;
  }
  return NCAST_OK;
}

bool PortProxy::read_commands() {
  const std::lock_guard lock(mutex_);
  for (Command& command : commands_) {
    if (command.remove) {
      removals_.push_back(std::move(command));
    } else {
      services_.push_back(command.service);
    }
  }
  commands_.clear();
  return !stopping_;
}

void PortProxy::finish_removals() {
  std::erase_if(removals_, [&](Command& command) {
    if (!command.service->is_idle()) return false;
    std::erase(services_, command.service);
    command.removed.set_value(true);
    return true;
  });
}

void PortProxy::sleep(bootstrap::Clock::duration idle) {
  if (idle < spin_time && !services_.empty()) return std::this_thread::yield();
  std::unique_lock lock(mutex_);
  const auto is_needed = [&] { return stopping_ || !commands_.empty(); };
  if (services_.empty()) return changed_.wait(lock, is_needed);
  changed_.wait_for(
      lock, idle < short_sleep_time ? bootstrap::Clock::duration(short_sleep) : bootstrap::Clock::duration(long_sleep),
      is_needed);
}

}  // namespace narrowcast::channel
