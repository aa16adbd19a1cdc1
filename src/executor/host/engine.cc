#include "executor/host/engine.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "channel/host/bounded_wait.h"
#include "executor/host/message.h"
#include "executor/host/staged_calls.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

// Runs the calls of one communicator.
class Execution {
 public:
  explicit Execution(StagedCalls staged) : staged_(std::move(staged)), wait_(*comm().world, comm().limit) {
    start_stage();
  }

  Communicator& comm() { return *staged_.comm; }
  bool done() const { return stage_ == staged_.stages.size(); }
  void sleep(bootstrap::Nanoseconds longest) { wait_.sleep(longest); }

  // Advances every transfer that can run by one step.
  ncast_status advance(bool* progressed) {
    if (ncast_status status = wait_.begin_poll()) return status;
    bool any_progress = false;
    Stage& stage = staged_.stages[stage_];
    bool stage_done = true;
    if (stage.comparison && !stage.comparison->done()) {
      if (ncast_status status = stage.comparison->advance(&any_progress)) return status;
      stage_done = stage.comparison->done();
    }
    if (stage.plan != nullptr && !stage.plan->done()) {
      if (ncast_status status = stage.plan->advance(&any_progress)) return status;
      stage_done = stage_done && stage.plan->done();
    }
    for (size_t i = 0; i < stage.queues.size(); ++i) {
      if (ncast_status status = advance_queue(stage.queues[i], &position_[i], &any_progress)) return status;
      stage_done = stage_done && position_[i] == stage.queues[i].size();
    }
    if (stage_done) {
      ++stage_;
      start_stage();
      any_progress = true;
    }
    if (any_progress) {
      *progressed = true;
      wait_.made_progress();
      return NCAST_OK;
    }
    const channel::RankSet awaited_ranks = this->awaited_ranks();
    if (wait_.is_inspecting()) {
      if (ncast_status status = compare_collectives(awaited_ranks)) return status;
    }
    ncast_status status = wait_.no_progress(awaited_ranks);
    return status == NCAST_TIMEOUT ? add_peer_call(status, awaited_ranks) : status;
  }

 private:
  static ncast_status advance_queue(Queue& queue, size_t* position, bool* progressed) {
    if (*position == queue.size()) return NCAST_OK;
    Transfer& transfer = *queue[*position];
    if (ncast_status status = transfer.advance(progressed)) return status;
    if (transfer.done()) ++*position;
    return NCAST_OK;
  }

  void start_stage() {
    if (done()) return;
    const Stage& stage = staged_.stages[stage_];
    const CallTag& tag = stage.tag;
    position_.assign(stage.queues.size(), 0);
    if (stage.plan != nullptr) stage.plan->begin(*stage.call, tag);
    channel::World& world = *comm().world;
    world.publish_current(pack(tag));
    if (is_point_to_point(tag.operation)) return;
    world.publish_collective(pack(tag));
    // Peers may be waiting for this tag in CompareCalls.
    if (has_root(tag.operation) || tag.operation == Operation::all_to_all_v || tag.plan != 0) world.wake_peers();
  }

  channel::RankSet awaited_ranks() const {
    channel::RankSet set = 0;
    const Stage& stage = staged_.stages[stage_];
    if (stage.comparison) set |= stage.comparison->awaited_ranks();
    if (stage.plan != nullptr) set |= stage.plan->awaited_ranks();
    for (size_t i = 0; i < stage.queues.size(); ++i) {
      if (position_[i] < stage.queues[i].size()) set |= stage.queues[i][position_[i]]->awaited_ranks();
    }
    return set;
  }

  // Detects ranks that wait for each other in different calls: they never receive a chunk whose tag would show it.
  ncast_status compare_collectives(channel::RankSet awaited_ranks) {
    const CallTag& mine = staged_.stages[stage_].tag;
    if (is_point_to_point(mine.operation)) return NCAST_OK;
    for (; awaited_ranks != 0; awaited_ranks &= awaited_ranks - 1) {
      const int peer = std::countr_zero(awaited_ranks);
      channel::Tag packed;
      if (!comm().world->collective_of(peer, &packed)) continue;
      CallTag theirs = unpack(packed);
      theirs.phase = mine.phase;
      if (theirs.sequence == mine.sequence && !same_call(theirs, mine)) return mismatch(comm(), mine, peer, theirs);
    }
    return NCAST_OK;
  }

  ncast_status add_peer_call(ncast_status status, channel::RankSet awaited_ranks) {
    const std::string message = ncast_last_error();
    const int peer = std::countr_zero(awaited_ranks);
    channel::Tag packed;
    if (!comm().world->current_of(peer, &packed)) return fail(status, "%s, which has made no call", message.c_str());
    const int missing = missing_rank();
    const std::string origin =
        missing < 0 || missing == peer ? "" : "; rank " + std::to_string(missing) + " has not begun this call";
    return fail(status, "%s, which %s %s%s", message.c_str(), comm().world->in_call(peer) ? "is in" : "has finished",
                describe(unpack(packed)).c_str(), origin.c_str());
  }

  // A rank that has not begun this collective, for which the awaited rank may wait in turn; -1: none.
  int missing_rank() {
    const CallTag& mine = staged_.stages[stage_].tag;
    if (is_point_to_point(mine.operation)) return -1;
    for (int rank = 0; rank < comm().ranks(); ++rank) {
      channel::Tag packed;
      if (!comm().world->collective_of(rank, &packed) || unpack(packed).sequence < mine.sequence) return rank;
    }
    return -1;
  }

  StagedCalls staged_;
  channel::BoundedWait wait_;
  size_t stage_ = 0;
  std::vector<size_t> position_;  // of the current transfer in each queue of the stage
};

ncast_status stage_calls(const std::vector<Call>& calls, std::vector<StagedCalls>* all_staged) {
  for (const Call& call : calls) {
    const auto same = [&](const StagedCalls& staged) { return staged.comm == call.comm; };
    if (std::ranges::none_of(*all_staged, same)) all_staged->push_back({&communicator_of(call), {}});
  }
  for (StagedCalls& staged : *all_staged) {
    // The communicator may have failed since the call was launched.
    if (ncast_status status = staged.comm->check_error()) return status;
    std::vector<const Call*> transfers;
    for (const Call& call : calls) {
      if (call.comm != staged.comm) continue;
      if (is_point_to_point(call.operation)) {
        transfers.push_back(&call);
      } else if (call.operation == Operation::all_to_all_v) {
        add_all_to_all_v(call, &staged);
      } else if (ncast_status status = add_plan(call, &staged)) {
        return status;
      }
    }
    add_sends_and_receives(transfers, &staged);
  }
  return NCAST_OK;
}

ncast_status advance_all(std::vector<Execution>& all) {
  // A thread can sleep on one bell only, and each communicator has its own. With several, sleep only briefly.
  const bootstrap::Nanoseconds longest = all.size() == 1 ? std::chrono::seconds(1) : std::chrono::milliseconds(1);
  for (;;) {
    bool progressed = false;
    Execution* waiting = nullptr;
    for (Execution& execution : all) {
      if (execution.done()) continue;
      if (ncast_status status = execution.advance(&progressed)) return status;
      if (!execution.done()) waiting = &execution;
    }
    if (waiting == nullptr) return NCAST_OK;
    if (!progressed) waiting->sleep(longest);
  }
}

}  // namespace

ncast_status run(const std::vector<Call>& calls) {
  std::vector<StagedCalls> all_staged;
  if (ncast_status status = stage_calls(calls, &all_staged)) return status;
  std::vector<Execution> all;
  all.reserve(all_staged.size());
  for (StagedCalls& staged : all_staged) all.emplace_back(std::move(staged));
  return advance_all(all);
}

}  // namespace narrowcast::executor::host
