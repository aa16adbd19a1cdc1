// Vector clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/budget.h"

namespace narrowcast::plan::verify {

// A vector clock: an epoch for each component, initially 0. Copies share memory until one of them changes.
class Row {
 public:
  uint32_t operator[](size_t component) const { return epochs_ == nullptr ? 0 : epochs_->values[component]; }
  // components: the number of components of this row and of all rows that it is joined with.
  void raise(size_t component, uint32_t epoch, size_t components);
  void join(const Row& other);

 private:
  struct Epochs {
    HeldMemory memory;
    std::vector<uint32_t> values;
  };
  // The epochs, which this row no longer shares.
  std::vector<uint32_t>& own(size_t components);

  std::shared_ptr<Epochs> epochs_;  // null: all zeros
};

}  // namespace narrowcast::plan::verify
