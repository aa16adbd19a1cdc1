#include "nccl/report/last_error.h"

#include <atomic>
#include <mutex>

#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// Per process, as in NCCL: the thread that asks is often not the one that failed.
struct LastError {
  std::mutex mutex;
  std::string message;
};

LastError& stored() {
  static LastError& the = *new LastError;
  return the;
}

constinit std::atomic<bool> is_set{false};

}  // namespace

void set_last_error(const std::string& message) {
  log(Level::warn, "%s", message.c_str());
  const std::lock_guard lock(stored().mutex);
  stored().message = message;
  is_set.store(true);
}

void clear_last_error() { is_set.store(false, std::memory_order_relaxed); }

const char* last_error() {
  if (!is_set.load(std::memory_order_relaxed)) return nullptr;
  thread_local std::string copy;
  const std::lock_guard lock(stored().mutex);
  copy = stored().message;
  return copy.c_str();
}

}  // namespace narrowcast::nccl
