// Decides the calls of one communicator. Its launches, explanations and predictors share the decisions.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "select/decision.h"

namespace narrowcast::select {

// What the calls of a communicator have in common; the same on all its ranks.
struct CommTraits {
  int ranks;
  Link link;
  uint32_t max_ctas = most_block_ctas;
  ForcedTransport transport = ForcedTransport::none;
};

class Decider {
 public:
  Decider(const CommTraits& traits, CostModel costs) : traits_(traits), costs_(std::move(costs)) {}

  const CommTraits& traits() const { return traits_; }
  const CostModel& costs() const { return costs_; }
  // bytes: as in CallShape.
  CallShape shape_of(Operation operation, ncast_dtype dtype, ncast_codec codec, uint64_t bytes) const {
    return {operation, dtype, codec, bytes, traits_.ranks, traits_.link, traits_.max_ctas};
  }
  // Any thread. Programs repeat their calls, so recent decisions are cached: a lookup takes 8 ns, a decision 430 ns. A
  // mutex is cheaper here than a sequence lock, with which a lookup took 26 ns.
  Decision decide(const CallShape& shape);

 private:
  struct Entry {
    CallShape shape;
    Decision decision;
  };

  const CommTraits traits_;
  const CostModel costs_;
  std::mutex mutex_;
  std::array<std::optional<Entry>, 64> recent_;
};

}  // namespace narrowcast::select
