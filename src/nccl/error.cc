#include "nccl/error.h"

#include <atomic>
#include <mutex>
#include <string>

#include "nccl/engine.h"
#include "nccl/log.h"

namespace narrowcast::nccl {
namespace {

// Of the process, as NCCL's is: the thread that asks is often not the one that failed.
struct LastError {
  std::mutex mutex;
  std::string sentence;
};

LastError& last_error() {
  static LastError& the = *new LastError;
  return the;
}

constinit std::atomic<bool> is_set{false};

}  // namespace

Result result_of(ncast_status status) {
  switch (status) {
    case NCAST_OK: return success;
    case NCAST_INVALID_ARGUMENT: return invalid_argument;
    case NCAST_UNSUPPORTED:
    case NCAST_MISMATCH: return invalid_usage;
    case NCAST_CUDA_ERROR: return unhandled_cuda_error;
    case NCAST_SYSTEM_ERROR: return system_error;
    case NCAST_REMOTE_ERROR:
    case NCAST_TIMEOUT: return remote_error;
    default: return internal_error;
  }
}

int report_engine_error(ncast_status status, const char* where) {
  const std::string sentence = std::string(where) + ": " + engine()->ncast_last_error();
  log(Level::warn, "%s", sentence.c_str());
  const std::lock_guard lock(last_error().mutex);
  last_error().sentence = sentence;
  is_set.store(true);
  return result_of(status);
}

const char* last_engine_error() {
  if (!is_set.load(std::memory_order_relaxed)) return nullptr;
  thread_local std::string copy;
  const std::lock_guard lock(last_error().mutex);
  copy = last_error().sentence;
  return copy.c_str();
}

void forget_engine_error() { is_set.store(false, std::memory_order_relaxed); }

}  // namespace narrowcast::nccl
