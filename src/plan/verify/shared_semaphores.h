// Semaphores that several groups signal, or for which several groups wait. Which signal ends which wait depends on
// timing, except where the signals or waits are ordered themselves. Only the order within their rank is used: groups,
// dependences and barriers.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "plan/verify/clocks.h"
#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

// The number of signals of a call that must have been sent when a wait ends.
struct SignalsNeeded {
  uint32_t least = 0;  // lower bound: the wait itself and all waits that happen before it
  uint32_t most = 0;   // sufficient in every order: all waits except those that happen after it
};

class SharedSemaphores {
 public:
  SharedSemaphores() = default;
  // order: one in which a call can run.
  SharedSemaphores(const FlatPlan& flat_plan, std::span<const uint32_t> order);

  bool has_shared_waits() const { return !needed_.empty(); }
  // position: of the channel in the step's list. NULL if only one group waits on the channel.
  const SignalsNeeded* needed(uint32_t flat, size_t position) const;

  // The number of a signal among those of its channel in a call; none if only one group signals the channel.
  uint32_t signal_index(uint32_t flat, size_t position) const;
  // Whether signal `later` of the channel follows `earlier` in every order.
  bool follows(uint32_t channel, uint32_t later, uint32_t earlier) const {
    const Signals& signals = signals_.at(channel);
    return signals.follows[size_t{later} * signals.others_before.size() + earlier];
  }
  // The number of other signals of the channel that can precede this one.
  uint32_t others_before(uint32_t channel, uint32_t signal) const { return signals_.at(channel).others_before[signal]; }

 private:
  struct Event {
    uint32_t flat;
    size_t position;
    uint32_t group;  // in the rank
    Row clock;       // by group of the rank: the flat steps that happen before it
  };
  struct Signals {
    std::vector<bool> follows;            // by two signals
    std::vector<uint32_t> others_before;  // by signal
  };

  static uint64_t key(uint32_t flat, size_t position) { return uint64_t{flat} << 32 | position; }
  static bool precedes(const Event& a, const Event& b);
  void add_rank(const FlatPlan& flat_plan, std::span<const uint32_t> order, int rank);
  void add_waits(const std::vector<Event>& waits);
  void add_signals(uint32_t channel, const std::vector<Event>& signals);

  HeldMemory memory_;
  std::unordered_map<uint64_t, SignalsNeeded> needed_;
  std::unordered_map<uint64_t, uint32_t> signal_indices_;
  std::unordered_map<uint32_t, Signals> signals_;  // by channel
};

}  // namespace narrowcast::plan::verify
