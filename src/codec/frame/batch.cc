// Batches of frames on the host: several threads take one array after the other.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "narrowcast/codec.h"
#include "status/error.h"

namespace narrowcast::codec {
namespace {

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// The error of the first item that has one.
class FirstError {
 public:
  void note(size_t item, ncast_status status) {
    if (status == NCAST_OK) return;
    const std::lock_guard lock(mutex_);
    if (status_ != NCAST_OK && item_ < item) return;
    item_ = item;
    status_ = status;
    message_ = ncast_last_error();
  }
  ncast_status report(const char* what) const {
    return status_ == NCAST_OK ? NCAST_OK : fail(status_, "%s %zu: %s", what, item_, message_.c_str());
  }

 private:
  std::mutex mutex_;
  size_t item_ = 0;
  ncast_status status_ = NCAST_OK;
  std::string message_;
};

// Returns false if the system has no more threads.
template <typename Work>
bool start(std::vector<std::jthread>& threads, Work& work) {
  try {
    threads.emplace_back(work);
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

// Calls work(item) for all items, those with the largest size first. work returns a status.
template <typename Size, typename Work>
ncast_status run(const char* what, size_t count, int threads, Size size, Work work) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t item) { return std::pair(~size(item), item); });
  FirstError error;
  std::atomic<size_t> next{0};
  auto take_items = [&] {
    for (size_t at = next++; at < count; at = next++) error.note(order[at], work(order[at]));
  };
  {
    const size_t most = std::min(static_cast<size_t>(threads > 0 ? threads : usable_cpus()), count);
    std::vector<std::jthread> others;
    while (others.size() + 1 < most && start(others, take_items)) continue;
    take_items();
  }
  return error.report(what);
}

ncast_status check(const char* function, int threads, size_t count, bool has_arrays) {
  if (threads < 0) return fail(NCAST_INVALID_ARGUMENT, "%s: threads is %d, not 0 or more", function, threads);
  if (count != 0 && !has_arrays) return fail(NCAST_INVALID_ARGUMENT, "%s: an array is NULL", function);
  return NCAST_OK;
}

}  // namespace
}  // namespace narrowcast::codec

extern "C" {

ncast_status ncast_encode_batch(size_t count, const void* const* values, const ncast_dtype* dtypes,
                                const uint64_t* elems, ncast_codec codec, uint32_t flags, void* const* frames,
                                const size_t* capacities, size_t* wire_bytes, int threads) {
  constexpr const char* function = "ncast_encode_batch";
  return narrowcast::guarded(function, [&] {
    if (const ncast_status status = narrowcast::codec::check(
            function, threads, count, values && dtypes && elems && frames && capacities && wire_bytes))
      return status;
    return narrowcast::codec::run(
        "array", count, threads, [&](size_t i) { return elems[i] * ncast_dtype_bytes(dtypes[i]); },
        [&](size_t i) {
          wire_bytes[i] = 0;
          size_t bytes = 0;
          const ncast_status status =
              ncast_encode(values[i], dtypes[i], elems[i], codec, flags, frames[i], capacities[i], &bytes);
          if (status == NCAST_OK) wire_bytes[i] = bytes;
          return status;
        });
  });
}

ncast_status ncast_decode_batch(size_t count, const void* const* frames, const size_t* frame_bytes, uint32_t flags,
                                void* const* values, const size_t* value_capacities, int threads) {
  constexpr const char* function = "ncast_decode_batch";
  return narrowcast::guarded(function, [&] {
    if (const ncast_status status =
            narrowcast::codec::check(function, threads, count, frames && frame_bytes && values && value_capacities))
      return status;
    return narrowcast::codec::run(
        "frame", count, threads, [&](size_t i) { return uint64_t{value_capacities[i]}; },
        [&](size_t i) {
          return ncast_decode(frames[i], frame_bytes[i], flags, values[i], value_capacities[i], nullptr);
        });
  });
}

}  // extern "C"
