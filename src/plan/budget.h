// Counts the work and memory spent on a plan, and stops at the limits of limits.h.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "narrowcast/types.h"
#include "plan/limits.h"
#include "status/error.h"

namespace narrowcast::plan {

// The plan exceeds a limit.
class TooLarge : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

// "the plan is too large: steps 5; at most 4 are supported". what: with a verb or colon before the number, if it needs
// one.
void check_limit(const std::string& what, uint64_t number, uint64_t limit);

// While a Budget exists, spend() and HeldMemory count against it in this thread. Only the outermost one counts.
class Budget {
 public:
  explicit Budget(uint64_t most_work = max_work, uint64_t most_bytes = max_memory_bytes);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget();

 private:
  friend void spend(uint64_t work);
  friend class HeldMemory;

  const uint64_t most_work_, most_bytes_;
  uint64_t work_ = 0, bytes_ = 0;
};

// Counts operations, a few nanoseconds each. Throws TooLarge.
void spend(uint64_t work);

// Counts memory until it is destroyed.
class HeldMemory {
 public:
  HeldMemory() = default;
  HeldMemory(HeldMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  HeldMemory& operator=(HeldMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldMemory();

  // Throws TooLarge.
  void grow(uint64_t bytes);

 private:
  uint64_t bytes_ = 0;
};

// Runs `body`, which returns a status, with a budget. UNSUPPORTED if it throws TooLarge.
template <typename Body>
ncast_status within_budget(Body body) {
  const Budget budget;
  try {
    return body();
  } catch (const TooLarge& error) {
    return fail(NCAST_UNSUPPORTED, "%s", error.what());
  }
}

}  // namespace narrowcast::plan
