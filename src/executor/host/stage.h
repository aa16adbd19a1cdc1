// A call as a sequence of stages. The transfers of a stage run concurrently; the stages run one after the other.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "executor/host/transfer.h"

namespace narrowcast::executor::host {

// Transfers on one ring, which run in order.
using Queue = std::vector<std::unique_ptr<Transfer>>;

struct Stage {
  CallTag tag;
  std::vector<Queue> queues;

  template <typename T, typename... Arguments>
  T& add(Arguments&&... arguments) {
    auto transfer = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T& added = *transfer;
    queues.emplace_back().push_back(std::move(transfer));
    return added;
  }
};

// The stages of all calls of one communicator in a launch.
struct Schedule {
  Communicator* comm;
  std::vector<Stage> stages;
};

// Divides a buffer of `total` values into one piece for each rank, in rank order. The first total % ranks pieces are
// longer by one value.
class Pieces {
 public:
  Pieces(uint64_t total, int ranks)
      : each_(total / static_cast<uint64_t>(ranks)), longer_(total % static_cast<uint64_t>(ranks)) {}

  uint64_t elems(int rank) const { return each_ + (static_cast<uint64_t>(rank) < longer_ ? 1 : 0); }
  uint64_t first(int rank) const {
    const auto number = static_cast<uint64_t>(rank);
    return number * each_ + (number < longer_ ? number : longer_);
  }

 private:
  uint64_t each_;
  uint64_t longer_;
};

// A copy of values within this rank.
class Copy final : public Transfer {
 public:
  Copy(const void* from, void* to, size_t bytes) : from_(from), to_(to), bytes_(bytes) {}

  ncast_status advance(bool* progressed) override;
  bool done() const override { return done_; }
  channel::RankSet awaited_ranks() const override { return 0; }

 private:
  const void* from_;
  void* to_;
  size_t bytes_;
  bool done_ = false;
};

// The address of a value in a buffer. NULL if the buffer is NULL.
inline const std::byte* at(const void* buffer, ncast_dtype dtype, uint64_t elem) {
  return buffer == nullptr ? nullptr : static_cast<const std::byte*>(buffer) + elem * ncast_dtype_bytes(dtype);
}
inline std::byte* at(void* buffer, ncast_dtype dtype, uint64_t elem) {
  return buffer == nullptr ? nullptr : static_cast<std::byte*>(buffer) + elem * ncast_dtype_bytes(dtype);
}

}  // namespace narrowcast::executor::host
