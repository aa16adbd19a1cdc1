#include "support/random_plans.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/plans.h"

namespace narrowcast::plan::verify::testing {

namespace {

// Steps are appended in an order in which they could be executed one after another: a wait after its signal, a receive
// after its send. So no plan has a deadlock.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {
    constexpr Operation operations[] = {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter,
                                        Operation::broadcast,  Operation::all_to_all, Operation::reduce};
    ranks_ = 2 + below(3);
    units_ = 1 + static_cast<uint32_t>(below(2));
    count_ = 1 + static_cast<uint32_t>(below(2));
    plan_ = empty_plan(operations[below(6)], ranks_, units_ * count_, 1 + static_cast<uint32_t>(below(3)));
    plan_.name = "random plan " + std::to_string(seed);
    if (operation::has_root(plan_.operation)) plan_.root = below(ranks_);
    if (below(3) == 0) plan_.threads = Threads::independent;
    if (below(3) == 0) plan_.scratch_copies = 2;
  }

  Plan run() {
    // Pieces of `units_` ranges of chunks, in random order.
    std::vector<std::pair<int, uint32_t>> pieces;
    const bool by_rank = plan_.operation == Operation::all_gather || plan_.operation == Operation::reduce_scatter ||
                         plan_.operation == Operation::all_to_all;
    for (int rank = 0; rank < (by_rank ? ranks_ : 1); ++rank)
      for (uint32_t unit = 0; unit < units_; ++unit) pieces.emplace_back(rank, unit);
    std::ranges::shuffle(pieces, random_);
    for (const auto& [rank, unit] : pieces) add_piece(rank, unit);
    std::ranges::shuffle(last_steps_, random_);
    for (const auto& [rank, group, step] : last_steps_) append(rank, group, step);
    return std::move(plan_);
  }

 private:
  // Values of one unit that a step of a rank has produced, or its input.
  struct Value {
    int rank;
    Operand where;
    bool has_step = false;
    StepId step = {};
  };

  int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  std::vector<Group>& groups(int rank) { return plan_.ranks[static_cast<size_t>(rank)].groups; }
  // Of those that are not for one loop only.
  uint32_t any_group(int rank) {
    uint32_t group = 0;
    do group = static_cast<uint32_t>(below(static_cast<int>(groups(rank).size())));
    while (std::ranges::find(closed_, std::pair(rank, group)) != closed_.end());
    return group;
  }
  ncast_codec any_codec() { return chance(30) ? ncast_codec{NCAST_CODEC_WINDOW} : ncast_codec{NCAST_CODEC_RAW}; }

  StepId append(int rank, uint32_t group, Step step) {
    std::vector<Step>& steps = groups(rank)[group].steps;
    steps.push_back(std::move(step));
    if (plan_.threads == Threads::independent) steps.push_back(sync());
    return {group, static_cast<uint32_t>(steps.size() - 1)};
  }

  // Makes later steps of the group come after another step of the rank; the next one, if `next` is given.
  void order(int rank, StepId earlier, uint32_t group, Step* next) {
    if (earlier.group == group) return;
    const int how = below(10);
    if (how < 7 || std::ranges::find(closed_, std::pair(rank, earlier.group)) != closed_.end()) {
      next->after.push_back(earlier);
    } else if (how < 9) {
      const uint32_t semaphore = add_memory(plan_, rank, rank);
      append(rank, earlier.group, signal({semaphore}));
      append(rank, group, wait({semaphore}));
    } else {
      auto& barriers = plan_.ranks[static_cast<size_t>(rank)].barriers;
      barriers.push_back({std::min(group, earlier.group), std::max(group, earlier.group)});
      append(rank, earlier.group, barrier(static_cast<uint32_t>(barriers.size() - 1)));
      append(rank, group, barrier(static_cast<uint32_t>(barriers.size() - 1)));
    }
  }

  StepId append_using(const std::vector<Value>& used, int rank, uint32_t group, Step step) {
    for (const Value& value : used)
      if (value.has_step && value.rank == rank) order(rank, value.step, group, &step);
    return append(rank, group, std::move(step));
  }

  uint32_t ring(int from, uint32_t sender, int to, uint32_t receiver) {
    const auto key = std::tuple(from, sender, to, receiver);
    const auto found = rings_.find(key);
    const bool is_usable =
        found != rings_.end() && std::ranges::find(rings_in_step_, found->second) == rings_in_step_.end();
    if (is_usable && chance(70)) return found->second;
    const uint32_t made = add_ring(plan_, from, to, 1 + static_cast<uint32_t>(below(3)));
    plan_.channels[made].packets = chance(20);
    return rings_[key] = made;
  }

  Operand new_scratch(int rank) {
    uint32_t& chunks = plan_.ranks[static_cast<size_t>(rank)].scratch_chunks;
    const uint32_t first = chunks;
    chunks += count_;
    return scratch(first);
  }

  // Waits, in a group of `rank`, until `owner` has entered the call.
  void wait_for_entry(int owner, int rank, uint32_t group) {
    const uint32_t entry = add_memory(plan_, owner, rank);
    append(owner, any_group(owner), relaxed_signal({entry}));
    append(rank, group, relaxed_wait({entry}));
  }

  // The source from which a step of the group can take the value next. finish(): call it after that step.
  Operand arrive(const Value& value, int rank, uint32_t group) {
    if (value.rank == rank) return value.where;
    const uint32_t sender = any_group(value.rank);
    switch (below(5)) {
      case 0:
      case 1: {
        const Operand sent = message(ring(value.rank, sender, rank, group), any_codec());
        if (count_ > 1) rings_in_step_.push_back(sent.channel);
        append_using({value}, value.rank, sender, copy(value.where, {sent}, count_));
        return sent;
      }
      case 2: {  // get
        const uint32_t ready = add_memory(plan_, value.rank, rank), done = add_memory(plan_, rank, value.rank);
        append_using({value}, value.rank, sender, signal({ready}));
        append(rank, group, wait({ready}));
        unfinished_.push_back({done, value.rank});
        return remote(value.where, ready);
      }
      case 3: return put(value, sender, rank, group, new_scratch(rank));
      default: {  // packets
        wait_for_entry(rank, value.rank, sender);
        Operand place = packets(new_scratch(rank));
        place.codec = any_codec();
        const uint32_t channel = add_memory(plan_, value.rank, rank);
        append_using({value}, value.rank, sender, copy(value.where, {remote(place, channel)}, count_));
        return place;
      }
    }
  }

  // The owners of what the last step has got learn that it has been read.
  void finish(int rank, uint32_t group) {
    for (const auto& [done, owner] : unfinished_) {
      append(rank, group, signal({done}));
      if (chance(50))
        append(owner, any_group(owner), wait({done}));
      else
        last_steps_.emplace_back(owner, any_group(owner), wait({done}));
    }
    unfinished_.clear();
    rings_in_step_.clear();
  }

  Operand put(const Value& value, uint32_t sender, int rank, uint32_t group, const Operand& place) {
    const bool by_port = chance(40);
    const uint32_t channel = by_port ? add_port(plan_, value.rank, rank) : add_memory(plan_, value.rank, rank);
    wait_for_entry(rank, value.rank, sender);
    append_using({value}, value.rank, sender, copy(value.where, {remote(place, channel)}, count_));
    append(value.rank, sender, signal({channel}));
    if (by_port && chance(50))
      append(value.rank, sender, flush({channel}));
    else if (by_port)
      last_steps_.emplace_back(value.rank, sender, flush({channel}));
    append(rank, group, wait({channel}));
    return place;
  }

  // Copies a value to a place of a rank.
  Value move(const Value& value, int rank, const Operand& place) {
    const uint32_t group = any_group(rank);
    if (value.rank != rank && chance(30)) {
      put(value, any_group(value.rank), rank, group, place);
      const auto last = static_cast<uint32_t>(groups(rank)[group].steps.size() - 1);
      return {rank, place, true, {group, last}};
    }
    if (value.rank != rank && !value.has_step && chance(20)) return stream(value, rank, place);
    const Operand source = arrive(value, rank, group);
    const StepId step = append_using({value}, rank, group, copy(source, {place}, count_));
    finish(rank, group);
    return {rank, place, true, step};
  }

  // Moves an input in a loop, between two groups of their own.
  Value stream(const Value& value, int rank, const Operand& place) {
    const auto open = [&](int owner) {
      const auto group = static_cast<uint32_t>(groups(owner).size());
      groups(owner).emplace_back();
      closed_.emplace_back(owner, group);
      return group;
    };
    const uint32_t sender = open(value.rank), receiver = open(rank);
    const uint64_t unit_bytes = uint64_t{16} << below(6);
    const int how = below(3);
    std::vector<Step> sent, received;
    if (how == 0) {
      const Operand between = message(add_ring(plan_, value.rank, rank, 2), any_codec());
      sent = {copy(value.where, {between}, count_)};
      received = {copy(between, {place}, count_)};
    } else {
      wait_for_entry(rank, value.rank, sender);
      const uint32_t channel = add_memory(plan_, value.rank, rank);
      Operand between = how == 1 ? place : packets(new_scratch(rank));
      if (how == 2) between.codec = any_codec();
      sent = {copy(value.where, {remote(between, channel)}, count_)};
      if (how == 1) {
        sent.push_back(signal({channel}));
        received = {wait({channel})};
      } else {
        received = {copy(between, {place}, count_)};
      }
    }
    append(value.rank, sender, loop(std::move(sent), unit_bytes));
    const StepId step = append(rank, receiver, loop(std::move(received), unit_bytes));
    return {rank, place, true, step};
  }

  // The reduction of values of all ranks at a place of one.
  Value combine(std::vector<Value> values, int rank, const Operand& place) {
    const uint32_t group = any_group(rank);
    if (chance(15)) return combine_by_switch(values, rank, group, place);
    if (values.size() > 2 && chance(30)) {  // some of them first, elsewhere
      const Value last = values.back();
      values.pop_back();
      const int other = below(ranks_);
      const Value sum = combine(std::move(values), other, new_scratch(other));
      values = {sum, last};
    }
    std::vector<Operand> sources;
    for (const Value& value : values) sources.push_back(arrive(value, rank, group));
    const StepId step = append_using(values, rank, group, reduce(sources, {place}, count_));
    finish(rank, group);
    return {rank, place, true, step};
  }

  Value combine_by_switch(const std::vector<Value>& values, int rank, uint32_t group, const Operand& place) {
    for (const Value& value : values) {
      if (value.has_step || static_cast<int>(values.size()) != ranks_) return combine_here(values, rank, group, place);
      if (value.rank == rank) continue;
      const uint32_t ready = add_memory(plan_, value.rank, rank);
      append(value.rank, any_group(value.rank), signal({ready}));
      append(rank, group, wait({ready}));
      unfinished_.push_back({add_memory(plan_, rank, value.rank), value.rank});
    }
    const StepId step = append(rank, group, copy(everywhere(values[0].where, the_switch()), {place}, count_));
    finish(rank, group);
    return {rank, place, true, step};
  }

  Value combine_here(const std::vector<Value>& values, int rank, uint32_t group, const Operand& place) {
    std::vector<Operand> sources;
    for (const Value& value : values) sources.push_back(arrive(value, rank, group));
    const StepId step = append_using(values, rank, group, reduce(sources, {place}, count_));
    finish(rank, group);
    return {rank, place, true, step};
  }

  // Distributes a value to the same place of all ranks, from any that has it already.
  void spread(const Value& value, const Operand& place) {
    std::vector<Value> holders = {value};
    if (value.where != place) {
      if (chance(20)) return spread_by_switch(value, place);
      holders = {move(value, value.rank, place)};
    }
    std::vector<int> order;
    for (int rank = 0; rank < ranks_; ++rank)
      if (rank != value.rank) order.push_back(rank);
    std::ranges::shuffle(order, random_);
    for (const int rank : order) {
      const Value from = chance(20) ? value : holders[random_() % holders.size()];
      holders.push_back(move(from, rank, place));
    }
  }

  void spread_by_switch(const Value& value, const Operand& place) {
    const uint32_t group = any_group(value.rank);
    std::vector<uint32_t> done;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == value.rank) continue;
      wait_for_entry(rank, value.rank, group);
      done.push_back(add_memory(plan_, value.rank, rank));
    }
    append_using({value}, value.rank, group, copy(value.where, {everywhere(place, the_switch())}, count_));
    append(value.rank, group, signal(done));
    for (const uint32_t channel : done) {
      const int rank = plan_.channels[channel].to;
      append(rank, any_group(rank), wait({channel}));
    }
  }

  uint32_t the_switch() {
    if (!has_switch_) switch_ = add_switch(plan_);
    has_switch_ = true;
    return switch_;
  }

  void add_piece(int piece, uint32_t unit) {
    const uint32_t here = unit * count_, there = static_cast<uint32_t>(piece) * plan_.chunks + here;
    const auto inputs = [&](uint32_t chunk) {
      std::vector<Value> values;
      for (int rank = 0; rank < ranks_; ++rank) values.push_back({rank, input(chunk)});
      return values;
    };
    switch (plan_.operation) {
      case Operation::all_gather: return spread({piece, input(here)}, output(there));
      case Operation::broadcast: return spread({plan_.root, input(here)}, output(here));
      case Operation::reduce_scatter: combine(inputs(there), piece, output(here)); return;
      case Operation::reduce: combine(inputs(here), plan_.root, output(here)); return;
      case Operation::all_to_all:
        for (int rank = 0; rank < ranks_; ++rank)
          move({rank, input(there)}, piece, output(static_cast<uint32_t>(rank) * plan_.chunks + here));
        return;
      default: {
        const int rank = below(ranks_);
        const bool to_scratch = chance(30);
        return spread(combine(inputs(here), rank, to_scratch ? new_scratch(rank) : output(here)), output(here));
      }
    }
  }

  std::mt19937 random_;
  Plan plan_;
  int ranks_ = 2;
  uint32_t units_ = 1;
  uint32_t count_ = 1;  // chunks of a unit
  std::map<std::tuple<int, uint32_t, int, uint32_t>, uint32_t> rings_;
  std::vector<uint32_t> rings_in_step_;                      // that the step of several chunks receives from
  std::vector<std::pair<int, uint32_t>> closed_;             // groups of loops
  std::vector<std::pair<uint32_t, int>> unfinished_;         // channels of gets, and the owners of what is read
  std::vector<std::tuple<int, uint32_t, Step>> last_steps_;  // of the call
  bool has_switch_ = false;
  uint32_t switch_ = 0;
};

}  // namespace

Plan random_plan(uint32_t seed) { return Generator(seed).run(); }

}  // namespace narrowcast::plan::verify::testing
