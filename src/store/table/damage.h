// Damaged rows that a call has found.
#pragma once

#include <cinttypes>
#include <mutex>

#include "status/error.h"
#include "store/table/table.h"

namespace narrowcast::store {

// Threads may use it at the same time.
class Damage {
 public:
  // position: in the call.
  void note(uint64_t position, uint64_t row) {
    const std::lock_guard lock(mutex_);
    if (count_++ == 0 || position < position_) {
      position_ = position;
      row_ = row;
    }
  }
  // Adds the rows to the counters of the table. Error: CORRUPT if there are any.
  ncast_status report(const char* function, Table& table) const {
    if (count_ == 0) return NCAST_OK;
    table.counters.damaged_rows += count_;
    return fail(NCAST_CORRUPT, "%s: row %" PRIu64 " of %s is damaged%s", function, row_, table.name.c_str(),
                count_ > 1 ? ", and so are others" : "");
  }

 private:
  std::mutex mutex_;
  uint64_t count_ = 0, position_ = 0, row_ = 0;
};

// The threads for a call that decodes `bytes`, if `threads` are asked for.
size_t reading_threads(int threads, uint64_t bytes);

}  // namespace narrowcast::store
