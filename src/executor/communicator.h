// A communicator as the interface sees it: what every backend's has.
#pragma once

#include <array>

#include "narrowcast/comm.h"
#include "select/decision.h"

namespace narrowcast::executor {

// Totals of one rank.
struct Counters {
  uint64_t scratch_bytes = 0;
  std::array<ncast_operation_counters, NCAST_OPERATIONS> operations = {};  // by ncast_operation
};

}  // namespace narrowcast::executor

struct ncast_comm {
 public:
  virtual ~ncast_comm() = default;  // it is idle, and nobody else uses it

  ncast_backend backend() const { return backend_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // The first error that a call met, here or on another rank, with its sentence as the last error. Any thread.
  virtual ncast_status check_error() = 0;
  // Ends the calls of every rank. Any thread.
  virtual ncast_status abort() = 0;
  // Any thread.
  virtual narrowcast::executor::Counters counters() const = 0;
  // What decisions depend on, besides the call; the same on all ranks. Any thread.
  virtual narrowcast::select::Link link() const { return narrowcast::select::Link::shared_memory; }
  virtual uint32_t max_ctas() const { return 0; }
  virtual narrowcast::select::Policy policy() const { return {narrowcast::select::CostModel::shipped()}; }
  // How a call runs. The one decision that calls, explanations and comparisons with NCCL share. bytes: as in CallShape.
  narrowcast::select::Decision decide(narrowcast::operation::Operation operation, ncast_dtype dtype, ncast_codec codec,
                                      uint64_t bytes) {
    return decisions_.of({operation, dtype, codec, bytes, ranks_, link(), max_ctas()}, policy());
  }

  // Returns when no call is left; before the communicator is destroyed, which happens whatever this returns.
  virtual ncast_status wait_until_idle() = 0;
  // Then, of what it shares with the other ranks, what cannot go without them: it may wait for them, which abort()
  // ends.
  virtual void leave_ranks() {}

 protected:
  ncast_comm(ncast_backend backend, int rank, int ranks) : backend_(backend), rank_(rank), ranks_(ranks) {}

 private:
  const ncast_backend backend_;
  const int rank_;
  const int ranks_;
  narrowcast::select::Decisions decisions_;
};
