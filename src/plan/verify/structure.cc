// Checks of indices, counts, codecs and operands.
#include "plan/verify/structure.h"

#include <algorithm>
#include <string>

#include "codec/codec.h"
#include "plan/budget.h"
#include "plan/steps.h"
#include "plan/verify/refuted.h"

namespace narrowcast::plan::verify {

namespace {

using std::to_string;

class StructureCheck {
 public:
  explicit StructureCheck(const Plan& plan) : plan_(plan) {}

  void run() {
    check_header();
    for (uint32_t i = 0; i < plan_.channels.size(); ++i) check_channel(i);
    uint64_t steps = 0;
    for (where_.rank = 0; where_.rank < plan_.rank_count(); ++where_.rank) {
      const Rank& rank = plan_.ranks[static_cast<size_t>(where_.rank)];
      check_barriers(rank);
      for (size_t group = 0; group < rank.groups.size(); ++group) {
        where_.group = static_cast<int>(group);
        const std::vector<Step>& list = rank.groups[group].steps;
        steps += list.size();
        for (size_t step = 0; step < list.size(); ++step) {
          where_.step = static_cast<int>(step);
          where_.origin = list[step].origin;
          check_step(rank, list[step]);
          steps += list[step].body.size();
        }
        where_.step = -1;
        where_.origin = 0;
      }
      where_.group = -1;
    }
    where_.rank = -1;
    check_limit("steps:", steps, max_steps);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { refute(Property::structure, where_, message); }

  bool is_rank(int rank) const { return rank >= 0 && rank < plan_.rank_count(); }

  void check_header() {
    if (static_cast<size_t>(plan_.operation) >= operation::count || !has_plans(plan_.operation))
      fail("there are no plans for this operation");
    if (plan_.ranks.empty() || plan_.ranks.size() > max_ranks)
      fail("the plan has " + to_string(plan_.ranks.size()) + " ranks; 1 to " + to_string(max_ranks) + " are possible");
    if (!is_rank(plan_.root))
      fail("root is " + to_string(plan_.root) + ", but the plan has " + to_string(plan_.ranks.size()) + " ranks");
    if (plan_.root != 0 && !operation::has_root(plan_.operation))
      fail("root is " + to_string(plan_.root) + ", but " + operation::name_of(plan_.operation) + " has no root");
    if (plan_.chunks == 0) fail("chunks is 0");
    check_limit("chunks of a buffer:", uint64_t{plan_.chunks} * plan_.ranks.size(), max_cells);
    if (plan_.instances == 0) fail("instances is 0");
    if (plan_.scratch_copies != 1 && plan_.scratch_copies != 2)
      fail("scratch_copies is " + to_string(plan_.scratch_copies) + ", but must be 1 or 2");
    if (plan_.max_bytes != 0 && plan_.max_bytes < plan_.min_bytes) fail("max_bytes is less than min_bytes");
  }

  void check_channel(uint32_t index) {
    const Channel& channel = plan_.channels[index];
    const std::string name = "channel " + to_string(index);
    if (channel.kind == ChannelKind::multicast) {
      if (channel.ranks.empty()) fail(name + " is a switch without ranks");
      for (size_t i = 0; i < channel.ranks.size(); ++i) {
        if (!is_rank(channel.ranks[i])) fail(name + ": rank " + to_string(channel.ranks[i]) + " does not exist");
        if (i != 0 && channel.ranks[i] <= channel.ranks[i - 1]) fail(name + ": the ranks are not ascending");
      }
      return;
    }
    for (const int rank : {channel.from, channel.to})
      if (!is_rank(rank)) fail(name + ": rank " + to_string(rank) + " does not exist");
    if (channel.kind == ChannelKind::ring) {
      if (channel.from == channel.to) fail(name + " is a ring from rank " + to_string(channel.from) + " to itself");
      if (channel.depth == 0) fail(name + " is a ring of depth 0");
    }
  }

  void check_barriers(const Rank& rank) {
    for (size_t i = 0; i < rank.barriers.size(); ++i) {
      std::vector<uint32_t> groups = rank.barriers[i];
      std::sort(groups.begin(), groups.end());
      if (groups.empty()) fail("barrier " + to_string(i) + " has no groups");
      if (groups.back() >= rank.groups.size())
        fail("barrier " + to_string(i) + ": group " + to_string(groups.back()) + " does not exist");
      if (std::adjacent_find(groups.begin(), groups.end()) != groups.end())
        fail("barrier " + to_string(i) + " names a group twice");
    }
  }

  void check_step(const Rank& rank, const Step& step) {
    where_.body = -1;
    check_one(rank, step);
    if (step.kind != StepKind::loop) return;
    if (step.body.empty()) fail("the loop has no steps");
    if (step.unit_bytes == 0) fail("the loop's unit_bytes is 0");
    for (size_t i = 0; i < step.body.size(); ++i) {
      where_.body = static_cast<int>(i);
      where_.origin = step.body[i].origin;
      if (step.body[i].kind == StepKind::loop) fail("loops cannot be nested");
      check_one(rank, step.body[i]);
    }
    where_.body = -1;
    where_.origin = step.origin;
  }

  void check_one(const Rank& rank, const Step& step) {
    if (static_cast<size_t>(step.kind) >= std::size(step_rows)) fail("unknown kind of step");
    const StepRow& row = row_of(step.kind);
    const std::string name = row.name;
    const size_t sources = step.from.size();
    if (row.sources == Sources::NONE && sources != 0) fail("a " + name + " cannot have sources");
    if (row.sources == Sources::ONE && sources != 1) fail("a " + name + " needs one source, not " + to_string(sources));
    if (row.sources == Sources::MANY && sources < 2) fail("a " + name + " needs at least two sources");
    if (row.destinations == Destinations::NONE && !step.to.empty()) fail("a " + name + " cannot have destinations");
    if (row.destinations == Destinations::SOME && step.to.empty()) fail("a " + name + " needs a destination");
    if (row.argument == Argument::CHANNELS && step.channels.empty()) fail("a " + name + " needs a channel");
    if (row.argument != Argument::CHANNELS && !step.channels.empty()) fail("a " + name + " cannot have channels");
    if (row.argument == Argument::BARRIER) check_barrier(rank, step);
    if (row.argument != Argument::LOOP && !step.body.empty()) fail("a " + name + " cannot have steps");
    if (step.count == 0) fail("count is 0");
    if (row.sources == Sources::NONE && step.count != 1) fail("a " + name + " cannot have a count");
    if (step.kind == StepKind::reduce && !operation::reduces(plan_.operation))
      fail(std::string("a reduce, but ") + operation::name_of(plan_.operation) + " does not reduce");
    for (const uint32_t channel : step.channels) check_step_channel(step, channel);
    for (const StepId& id : step.after) check_after(rank, id);
    for (const Operand& operand : step.from) check_operand(step, operand, true);
    for (const Operand& operand : step.to) check_operand(step, operand, false);
    check_partial(step);
    const size_t operands = sources + step.to.size();
    spend(operands * operands + step.channels.size() + step.after.size());
    check_overlap(step);
    check_rings(step);
  }

  // Accumulators become values only in a reduction.
  void check_partial(const Step& step) const {
    const auto is_partial = [](const Operand& operand) { return operand.partial; };
    const bool stores = std::ranges::any_of(step.to, is_partial);
    if (stores && !std::ranges::all_of(step.to, is_partial))
      fail("some of the destinations are of partial sums, and others of values");
    if (step.kind == StepKind::copy && step.from[0].partial != stores)
      fail("a copy cannot convert between partial sums and values");
    for (const auto* const operands : {&step.from, &step.to})
      for (const Operand& operand : *operands)
        if (operand.partial && operand.place != Place::message &&
            (operand.place != Place::local || operand.buffer != Buffer::scratch || operand.packets))
          fail("partial sums are only possible in messages and in scratch of the rank itself");
  }

  void check_barrier(const Rank& rank, const Step& step) const {
    if (step.barrier >= rank.barriers.size()) fail("barrier " + to_string(step.barrier) + " does not exist");
    const std::vector<uint32_t>& groups = rank.barriers[step.barrier];
    if (std::find(groups.begin(), groups.end(), static_cast<uint32_t>(where_.group)) == groups.end())
      fail("barrier " + to_string(step.barrier) + " is not for this group");
  }

  void check_step_channel(const Step& step, uint32_t index) const {
    if (index >= plan_.channels.size()) fail("channel " + to_string(index) + " does not exist");
    const Channel& channel = plan_.channels[index];
    const std::string name = row_of(step.kind).name;
    if (channel.kind != ChannelKind::memory && channel.kind != ChannelKind::port)
      fail("a " + name + " on channel " + to_string(index) + ", which is a " +
           channel_kind_names[static_cast<size_t>(channel.kind)]);
    if (step.kind == StepKind::signal && channel.from != where_.rank)
      fail("a signal on channel " + to_string(index) + ", which rank " + to_string(channel.from) + " signals");
    if (step.kind == StepKind::wait && channel.to != where_.rank)
      fail("a wait on channel " + to_string(index) + ", for which rank " + to_string(channel.to) + " waits");
    if (step.kind == StepKind::flush && channel.from != where_.rank && channel.to != where_.rank)
      fail("a flush of channel " + to_string(index) + ", which connects other ranks");
  }

  void check_after(const Rank& rank, const StepId& id) const {
    const std::string name = "group " + to_string(id.group) + ", step " + to_string(id.step);
    if (id.group >= rank.groups.size() || id.step >= rank.groups[id.group].steps.size())
      fail("after " + name + ", which does not exist");
    if (static_cast<int>(id.group) == where_.group) fail("after " + name + " of the same group");
  }

  void check_operand(const Step& step, const Operand& operand, bool is_source) const {
    const char* role = is_source ? "a source" : "a destination";
    if (static_cast<size_t>(operand.place) >= std::size(place_rows)) fail("unknown place of an operand");
    if (operand.codec != NCAST_CODEC_RAW) {
      if (codec::find_row(operand.codec) == nullptr || codec::check("plan", operand.codec) != NCAST_OK)
        fail(std::string(role) + " has an unknown codec: " + codec::describe(operand.codec));
      const bool is_own_destination = !is_source && operand.place == Place::local;
      if (operand.place != Place::message && !operand.packets && !is_own_destination)
        fail(std::string(role) + " has a codec, but is neither a message nor packets");
    }
    if (operand.place == Place::everywhere && is_source && !operation::reduces(plan_.operation))
      fail(std::string("a switch combines values, but ") + operation::name_of(plan_.operation) + " does not reduce");
    if (operand.has_channel()) check_operand_channel(operand, role);
    if (operand.place == Place::message) {
      if (operand.packets) fail("a message is marked as packets; its channel says so");
      const Channel& ring = plan_.channels[operand.channel];
      if (is_source && ring.to != where_.rank)
        fail("a receive on channel " + to_string(operand.channel) + ", on which rank " + to_string(ring.to) +
             " receives");
      if (!is_source && ring.from != where_.rank)
        fail("a send on channel " + to_string(operand.channel) + ", on which rank " + to_string(ring.from) + " sends");
      return;
    }
    if (static_cast<size_t>(operand.buffer) >= std::size(buffer_names)) fail("unknown buffer of an operand");
    if (operand.packets && operand.buffer != Buffer::scratch) fail("packets are only possible in scratch");
    check_bounds(step, operand, role);
  }

  void check_operand_channel(const Operand& operand, const char* role) const {
    const std::string name = "channel " + to_string(operand.channel);
    if (operand.channel >= plan_.channels.size()) fail(std::string(role) + " on " + name + ", which does not exist");
    const Channel& channel = plan_.channels[operand.channel];
    const ChannelKind kind = channel.kind;
    const bool fits = operand.place == Place::message      ? kind == ChannelKind::ring
                      : operand.place == Place::everywhere ? kind == ChannelKind::multicast
                                                           : kind == ChannelKind::memory || kind == ChannelKind::port;
    if (!fits)
      fail(std::string(role) + " on " + name + ", which is a " + channel_kind_names[static_cast<size_t>(kind)]);
    const bool is_member =
        operand.place == Place::everywhere
            ? std::find(channel.ranks.begin(), channel.ranks.end(), where_.rank) != channel.ranks.end()
            : channel.from == where_.rank || channel.to == where_.rank;
    if (!is_member) fail(std::string(role) + " on " + name + ", which connects other ranks");
    if (operand.place == Place::remote && channel.from == channel.to)
      fail(std::string(role) + " on " + name + ", which connects the rank with itself");
  }

  void check_bounds(const Step& step, const Operand& operand, const char* role) const {
    const auto check = [&](int rank) {
      const uint64_t end = uint64_t{operand.chunk} + step.count, chunks = plan_.buffer_chunks(rank, operand.buffer);
      if (end > chunks)
        refute(Property::bounds, where_,
               std::string(role) + " is " + describe(plan_, where_.rank, operand, step.count) + ", but rank " +
                   to_string(rank) + "'s " + buffer_names[static_cast<size_t>(operand.buffer)] + " has " +
                   to_string(chunks) + (chunks == 1 ? " chunk" : " chunks"));
    };
    if (operand.place == Place::local) return check(where_.rank);
    const Channel& channel = plan_.channels[operand.channel];
    if (operand.place == Place::remote) return check(channel.from == where_.rank ? channel.to : channel.from);
    for (const int rank : channel.ranks) check(rank);
  }

  // A destination must not overlap another one, or a source unless the ranges are equal.
  void check_overlap(const Step& step) const {
    const auto overlap = [&](const Operand& a, const Operand& b) {
      if (!a.has_location() || !b.has_location() || a.buffer != b.buffer) return false;
      const uint64_t distance = a.chunk > b.chunk ? a.chunk - b.chunk : b.chunk - a.chunk;
      return distance < step.count && share_a_rank(a, b);
    };
    for (size_t i = 0; i < step.to.size(); ++i) {
      const Operand& to = step.to[i];
      for (const Operand& from : step.from)
        if (overlap(to, from) && to.chunk != from.chunk)
          fail("the step writes " + describe(plan_, where_.rank, to, step.count) + " while it reads " +
               describe(plan_, where_.rank, from, step.count));
      for (size_t j = 0; j < i; ++j)
        if (overlap(to, step.to[j])) fail("the step writes " + describe(plan_, where_.rank, to, step.count) + " twice");
    }
  }

  // Executors move a step chunk by chunk, so two multi-chunk messages on a ring would alternate, while the peer's step
  // expects one after the other. In a loop every step moves one chunk at a time.
  void check_rings(const Step& step) const {
    if (step.count == 1 || where_.body >= 0) return;
    for (const auto* operands : {&step.from, &step.to}) {
      for (size_t i = 0; i < operands->size(); ++i) {
        const Operand& operand = (*operands)[i];
        const auto same = [&](const Operand& other) {
          return other.place == Place::message && other.channel == operand.channel;
        };
        if (operand.place == Place::message &&
            std::any_of(operands->begin(), operands->begin() + static_cast<ptrdiff_t>(i), same))
          fail("a step of several chunks has two messages on ring " + to_string(operand.channel));
      }
    }
  }

  bool is_at(const Operand& operand, int rank) const {
    if (operand.place == Place::local) return rank == where_.rank;
    const Channel& channel = plan_.channels[operand.channel];
    if (operand.place == Place::remote) return rank == (channel.from == where_.rank ? channel.to : channel.from);
    return std::binary_search(channel.ranks.begin(), channel.ranks.end(), rank);
  }

  bool share_a_rank(const Operand& a, const Operand& b) const {
    if (a.place != Place::everywhere) {
      const int rank = a.place == Place::local                         ? where_.rank
                       : plan_.channels[a.channel].from == where_.rank ? plan_.channels[a.channel].to
                                                                       : plan_.channels[a.channel].from;
      return is_at(b, rank);
    }
    const std::vector<int>& ranks = plan_.channels[a.channel].ranks;
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return is_at(b, rank); });
  }

  const Plan& plan_;
  Where where_;
};

}  // namespace

Finding check_structure(const Plan& plan) { return first_finding(StructureCheck(plan)); }

}  // namespace narrowcast::plan::verify
