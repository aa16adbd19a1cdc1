// Pairs of events around work on streams, which are read later, without waiting for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "nccl/libraries/cuda_driver.h"

namespace narrowcast::nccl {

// At most `capacity` pairs are pending. Tag: what the caller keeps about each of them. Used by one thread at a time,
// with the device of the streams current.
template <typename Tag, size_t capacity>
class EventPairs {
 public:
  EventPairs() = default;
  ~EventPairs() {
    for (const Pair& pair : pairs_)
      for (void* const event : {pair.begin, pair.end})
        if (event != nullptr) driver()->cuEventDestroy_v2(event);
  }
  EventPairs(const EventPairs&) = delete;
  EventPairs& operator=(const EventPairs&) = delete;

  bool has_free() const {
    return std::ranges::any_of(pairs_, [](const Pair& pair) { return !pair.is_pending; });
  }
  // Before the work is put on the stream. Does nothing if no pair is free.
  void begin(void* stream, Tag tag) {
    const auto pair = std::ranges::find(pairs_, false, &Pair::is_pending);
    if (pair == pairs_.end()) return;
    for (void** const event : {&pair->begin, &pair->end})
      if (*event == nullptr && driver()->cuEventCreate(event, 0) != 0) return;
    if (driver()->cuEventRecord(pair->begin, stream) != 0) return;
    pair->tag = std::move(tag);
    current_ = &*pair;
  }
  // After it. Does nothing if begin() did nothing.
  void end(void* stream) {
    if (current_ == nullptr) return;
    current_->is_pending = driver()->cuEventRecord(current_->end, stream) == 0;
    current_ = nullptr;
  }
  // Calls finished(tag, begin, milliseconds) for each pair whose work is complete. begin: the event.
  template <typename Finished>
  void collect(Finished&& finished) {
    // A query would end the capture of another stream.
    const RelaxedCaptureMode relaxed;
    for (Pair& pair : pairs_) {
      if (!pair.is_pending || driver()->cuEventQuery(pair.end) == cuda_not_ready) continue;
      pair.is_pending = false;
      float milliseconds = 0;
      if (driver()->cuEventElapsedTime(&milliseconds, pair.begin, pair.end) == 0)
        finished(pair.tag, pair.begin, static_cast<double>(milliseconds));
    }
  }

 private:
  struct Pair {
    void *begin = nullptr, *end = nullptr;
    Tag tag = {};
    bool is_pending = false;
  };

  std::array<Pair, capacity> pairs_;
  Pair* current_ = nullptr;
};

}  // namespace narrowcast::nccl
