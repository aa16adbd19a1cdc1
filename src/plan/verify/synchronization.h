// Runs the synchronization of a plan without values: determines whether a call completes, and an order in which its
// steps can run. Rings have one reader and one writer, and each wait needs a fixed number of signals, so all orders
// complete if one does.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/verify/flat_plan.h"
#include "plan/verify/shared_semaphores.h"

namespace narrowcast::plan::verify {

class Synchronization {
 public:
  explicit Synchronization(const FlatPlan& flat_plan);

  // Runs one call until nothing can run. Returns whether it completed.
  //   depth: of all rings; 0: as the plan states.
  bool run(uint32_t depth);

  // Makes waits that share a semaphore with other groups end only when they can end in every order of those. If a call
  // completes under this rule, it completes in every order. shared: outlives this object.
  void set_shared_semaphores(const SharedSemaphores& shared) { shared_ = &shared; }

  // The flat steps in the order of the last run. A barrier occurs once, for the last group to arrive.
  const std::vector<uint32_t>& order() const { return order_; }

  // After a run that did not complete: the cycle of waits.
  Finding deadlock() const;

  // The least depth of all rings at which a call completes; 0 if there is none, or no rings.
  uint32_t least_depth();

 private:
  enum class Reason : uint8_t { ready, step, message, room, signal, packets, barrier };
  struct Blocker {
    Reason reason = Reason::ready;
    uint32_t index = 0;  // a group, channel, cell or barrier
    uint32_t until = 0;  // Reason::step: the flat step that the other group must reach
  };

  void clear();
  void run_group(uint32_t group);
  Blocker blocker_of(uint32_t flat) const;
  Blocker message_blocker(const std::vector<Operand>& from) const;
  Blocker packet_blocker(const FlatStep& step) const;
  Blocker room_blocker(const std::vector<Operand>& to) const;
  void complete(uint32_t flat);
  bool arrive(uint32_t flat);
  void block(uint32_t group, const Blocker& blocker);
  void wake(std::vector<uint32_t>& heads, uint32_t index);
  void wake_step_waiters(uint32_t group);
  uint32_t barrier_of(const FlatStep& step) const {
    return flat_plan_.rank_barriers[static_cast<size_t>(flat_plan_.rank_of(step))] + step.step->barrier;
  }
  // The group that must make progress before the blocked group can continue; none if there is no such group.
  uint32_t culprit(uint32_t group, const Blocker& blocker) const;
  std::string describe_wait(uint32_t group, const Blocker& blocker, uint32_t culprit) const;
  bool will_write_packets(uint32_t flat, uint32_t cell) const;

  const FlatPlan& flat_plan_;
  const MemoryMap map_;
  const SharedSemaphores* shared_ = nullptr;
  uint32_t depth_ = 0;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> next_;             // of each group its next flat step
  std::vector<uint32_t> sent_, received_;  // of each channel: messages, or signals and waits
  std::vector<uint8_t> arrived_;           // by group: whether it waits in a barrier
  std::vector<uint32_t> arrivals_;         // of each barrier
  std::vector<uint8_t> has_packets_;       // of each cell
  std::vector<uint32_t> runnable_;
  // Linked lists of waiting groups. Heads by group, channel (messages or signals, and room) or cell; then the links.
  std::vector<uint32_t> step_waiters_, message_waiters_, room_waiters_, packet_waiters_, next_waiter_;
  std::vector<uint32_t> until_;  // by group that waits for a step
};

}  // namespace narrowcast::plan::verify
