#include "executor/host/engine.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "channel/host/bounded_wait.h"
#include "executor/host/operations.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

// One communicator's script on its way.
class Progress {
 public:
  explicit Progress(Script script) : script_(std::move(script)), wait_(*comm().world, comm().limit) { start_stage(); }

  Communicator& comm() { return *script_.comm; }
  bool done() const { return stage_ == script_.stages.size(); }
  void sleep(bootstrap::Nanoseconds longest) { wait_.sleep(longest); }

  // One turn of every transfer that can run.
  ncast_status advance(bool* moved) {
    if (ncast_status status = wait_.begin_poll()) return status;
    bool here = false;
    Stage& stage = script_.stages[stage_];
    bool stage_done = true;
    for (size_t i = 0; i < stage.queues.size(); ++i) {
      if (ncast_status status = advance_queue(stage.queues[i], &position_[i], &here)) return status;
      stage_done = stage_done && position_[i] == stage.queues[i].size();
    }
    if (stage_done) {
      ++stage_;
      start_stage();
      here = true;
    }
    if (here) {
      *moved = true;
      wait_.made_progress();
      return NCAST_OK;
    }
    const channel::RankSet awaited = this->awaited();
    if (wait_.is_inspecting()) {
      if (ncast_status status = compare_collectives(awaited)) return status;
    }
    ncast_status status = wait_.no_progress(awaited);
    return status == NCAST_TIMEOUT ? add_peer_call(status, awaited) : status;
  }

 private:
  static ncast_status advance_queue(Queue& queue, size_t* position, bool* moved) {
    if (*position == queue.size()) return NCAST_OK;
    Transfer& transfer = *queue[*position];
    if (ncast_status status = transfer.advance(moved)) return status;
    if (transfer.done()) ++*position;
    return NCAST_OK;
  }

  void start_stage() {
    if (done()) return;
    position_.assign(script_.stages[stage_].queues.size(), 0);
    const CallTag& tag = script_.stages[stage_].tag;
    channel::World& world = *comm().world;
    world.publish_current(to_words(tag));
    if (is_point_to_point(tag.operation)) return;
    world.publish_collective(to_words(tag));
    // Peers wait for this in CompareCalls.
    if (has_root(tag.operation) || tag.operation == Operation::all_to_all_v) world.wake_peers();
  }

  channel::RankSet awaited() const {
    channel::RankSet set = 0;
    const Stage& stage = script_.stages[stage_];
    for (size_t i = 0; i < stage.queues.size(); ++i) {
      if (position_[i] < stage.queues[i].size()) set |= stage.queues[i][position_[i]]->awaited();
    }
    return set;
  }

  // Ranks that wait for each other in different calls get no chunk that would tell them.
  ncast_status compare_collectives(channel::RankSet awaited) {
    const CallTag& mine = script_.stages[stage_].tag;
    if (is_point_to_point(mine.operation)) return NCAST_OK;
    for (; awaited != 0; awaited &= awaited - 1) {
      const int peer = std::countr_zero(awaited);
      channel::Tag words;
      if (!comm().world->collective_of(peer, &words)) continue;
      CallTag theirs = from_words(words);
      theirs.phase = mine.phase;
      if (theirs.sequence == mine.sequence && !same_call(theirs, mine)) return mismatch(comm(), mine, peer, theirs);
    }
    return NCAST_OK;
  }

  ncast_status add_peer_call(ncast_status status, channel::RankSet awaited) {
    const std::string message = ncast_last_error();
    const int peer = std::countr_zero(awaited);
    channel::Tag words;
    if (!comm().world->current_of(peer, &words)) return fail(status, "%s, which has made no call", message.c_str());
    return fail(status, "%s, which is %s %s", message.c_str(), comm().world->in_call(peer) ? "in" : "done with",
                describe(from_words(words)).c_str());
  }

  Script script_;
  channel::BoundedWait wait_;
  size_t stage_ = 0;
  std::vector<size_t> position_;  // in each queue of the stage
};

std::vector<Script> make_scripts(const std::vector<Call>& calls) {
  std::vector<Script> scripts;
  for (const Call& call : calls) {
    const auto same = [&](const Script& script) { return script.comm == call.comm; };
    if (std::ranges::none_of(scripts, same)) scripts.push_back({&communicator_of(call), {}});
  }
  for (Script& script : scripts) {
    std::vector<const Call*> transfers;
    for (const Call& call : calls) {
      if (call.comm != script.comm) continue;
      switch (call.operation) {
        case Operation::send:
        case Operation::recv: transfers.push_back(&call); break;
        case Operation::broadcast: add_broadcast(call, &script); break;
        case Operation::reduce: add_reduce(call, &script); break;
        case Operation::gather: add_gather(call, &script); break;
        case Operation::scatter: add_scatter(call, &script); break;
        case Operation::all_gather: add_all_gather(call, &script); break;
        case Operation::all_to_all: add_all_to_all(call, &script); break;
        case Operation::all_to_all_v: add_all_to_all_v(call, &script); break;
        case Operation::reduce_scatter: add_reduce_scatter(call, &script); break;
        case Operation::all_reduce: add_all_reduce(call, &script); break;
      }
    }
    add_sends_and_receives(transfers, &script);
  }
  return scripts;
}

ncast_status advance_all(std::vector<Progress>& all) {
  // Several communicators have several bells, and one thread can sleep on one only.
  const bootstrap::Nanoseconds longest = all.size() == 1 ? std::chrono::seconds(1) : std::chrono::milliseconds(1);
  for (;;) {
    bool moved = false;
    Progress* waiting = nullptr;
    for (Progress& progress : all) {
      if (progress.done()) continue;
      if (ncast_status status = progress.advance(&moved)) return status;
      if (!progress.done()) waiting = &progress;
    }
    if (waiting == nullptr) return NCAST_OK;
    if (!moved) waiting->sleep(longest);
  }
}

}  // namespace

CallTag next_collective(Communicator& comm, const Call& call) { return make_tag(call, ++comm.collectives); }

channel::RankSet all_peers(const Communicator& comm) {
  const channel::RankSet all = ~channel::RankSet{0} >> (64 - comm.ranks());
  return all & ~channel::rank_bit(comm.rank());
}

ncast_status run(const std::vector<Call>& calls) {
  std::vector<Script> scripts = make_scripts(calls);
  std::vector<Progress> all;
  all.reserve(scripts.size());
  for (Script& script : scripts) {
    // A call that was launched before an error came to be known does not start after it.
    if (ncast_status status = script.comm->check_error()) return status;
    all.emplace_back(std::move(script));
  }
  return advance_all(all);
}

}  // namespace narrowcast::executor::host
