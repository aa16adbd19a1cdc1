// Checks that messages, signals and visits of barriers match between groups and ranks.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "codec/codec.h"
#include "plan/verify/refuted.h"
#include "plan/verify/structure.h"

namespace narrowcast::plan::verify {

namespace {

using std::to_string;

struct Message {
  uint32_t flat;
  uint32_t cells;
  ncast_codec codec;
  bool partial;
  uint64_t unit_bytes;
};

class MatchingCheck {
 public:
  explicit MatchingCheck(const FlatPlan& flat_plan)
      : flat_plan_(flat_plan),
        sends_(flat_plan.channels.size()),
        receives_(flat_plan.channels.size()),
        signals_(flat_plan.channels.size()),
        waits_(flat_plan.channels.size()) {}

  void run() {
    std::vector<std::map<uint32_t, uint64_t>> visits(flat_plan_.barriers.size());
    uint64_t unit_bytes = 0;
    uint32_t chunks = 0;
    for (uint32_t flat = 0; flat < flat_plan_.steps.size(); ++flat) {
      const FlatStep& step = flat_plan_.steps[flat];
      if (flat_plan_.is_boundary(step)) {
        unit_bytes = step.step->unit_bytes;
        spend(step.step->body.size());
        chunks = widest(step.step->body);
        continue;
      }
      const uint64_t unit = step.body >= 0 ? unit_bytes : 0;
      spend(5 * (step.step->from.size() + step.step->to.size()) + 20 * step.step->channels.size());
      for (const Operand& operand : step.step->from) note(receives_, flat, operand, unit, "receives from");
      for (const Operand& operand : step.step->to) note(sends_, flat, operand, unit, "sends to");
      for (const uint32_t channel : step.step->channels) {
        if (step.step->kind == StepKind::flush) continue;
        auto& counts = step.step->kind == StepKind::signal ? signals_ : waits_;
        Count& count = counts[channel][{unit, step.body >= 0 ? chunks : 0}];
        ++count.steps;
        count.flat = flat;
      }
      if (step.step->kind == StepKind::barrier)
        ++visits[flat_plan_.rank_barriers[static_cast<size_t>(flat_plan_.rank_of(step))] + step.step->barrier]
                [step.group];
    }
    for (uint32_t channel = 0; channel < flat_plan_.channels.size(); ++channel) {
      check_messages(channel);
      check_semaphore(channel);
    }
    check_barriers(visits);
  }

 private:
  struct Count {
    uint64_t steps = 0;
    uint32_t flat = none;
  };
  // By the loop's unit and chunks, because the number of iterations depends on them; 0, 0 outside loops.
  using Counts = std::map<std::pair<uint64_t, uint32_t>, Count>;

  static std::string counted(uint64_t count, const char* one, const char* many) {
    return to_string(count) + " " + (count == 1 ? one : many);
  }

  // "3 from rank 0 to rank 1".
  std::string ends(uint32_t channel) const {
    const Channel& described = flat_plan_.plan->channels[channel];
    return to_string(channel) + " from rank " + to_string(described.from) + " to rank " + to_string(described.to);
  }

  void note(std::vector<std::vector<Message>>& messages, uint32_t flat, const Operand& operand, uint64_t unit,
            const char* verb) {
    if (operand.place != Place::message) return;
    memory_.grow(sizeof(Message));
    std::vector<Message>& list = messages[operand.channel];
    const FlatStep& step = flat_plan_.steps[flat];
    if (!list.empty() && flat_plan_.steps[list.front().flat].group != step.group)
      refute(Property::structure, flat_plan_.where(flat),
             std::string("a second group ") + verb + " ring " + to_string(operand.channel) + "; the first is group " +
                 to_string(flat_plan_.where(list.front().flat).group));
    list.push_back({flat, step.cells, codec::canonical(operand.codec), operand.partial, unit});
  }

  void check_messages(uint32_t channel) const {
    const std::vector<Message>&sends = sends_[channel], &receives = receives_[channel];
    const std::string ring = "ring " + ends(channel);
    for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
      const Message &send = sends[i], &receive = receives[i];
      const auto mismatch = [&](const std::string& text) {
        std::string message = ring;
        message.append(", message ").append(to_string(i)).append(": ").append(text);
        Finding finding{Property::structure, flat_plan_.where(receive.flat), std::move(message), {}};
        finding.trace = {{flat_plan_.where(send.flat), describe(flat_plan_, send.flat)},
                         {flat_plan_.where(receive.flat), describe(flat_plan_, receive.flat)}};
        throw Refuted(std::move(finding));
      };
      const auto chunks = [&](const Message& message) {
        return counted(message.cells / flat_plan_.parts, "chunk", "chunks");
      };
      if (send.unit_bytes != receive.unit_bytes) mismatch("it is sent and received by loops that differ in unit_bytes");
      if (send.cells != receive.cells)
        mismatch("the sender sends " + chunks(send) + ", the receiver expects " + chunks(receive));
      if (send.codec != receive.codec)
        mismatch("it is sent as " + codec::describe(send.codec) + " and received as " + codec::describe(receive.codec));
      if (send.partial != receive.partial) mismatch("only one end says that it contains partial sums");
    }
    if (sends.size() == receives.size()) return;
    const bool is_lost = sends.size() > receives.size();
    const Message& first = is_lost ? sends[receives.size()] : receives[sends.size()];
    refute(Property::structure, flat_plan_.where(first.flat),
           ring + ": " + counted(sends.size(), "message is sent", "messages are sent") + " and " +
               to_string(receives.size()) + " received; " +
               (is_lost ? "no step receives what this step sends" : "no step sends what this step receives"));
  }

  void check_semaphore(uint32_t channel) const {
    Counts kinds = signals_[channel];
    kinds.insert(waits_[channel].begin(), waits_[channel].end());
    for (const auto& [kind, ignored] : kinds) {
      const auto count_in = [&kind = kind](const Counts& counts) {
        const auto found = counts.find(kind);
        return found == counts.end() ? Count{} : found->second;
      };
      const Count signals = count_in(signals_[channel]), waits = count_in(waits_[channel]);
      if (signals.steps == waits.steps) continue;
      const std::string text = "channel " + ends(channel) + ": " + counted(signals.steps, "signal", "signals") +
                               " and " + counted(waits.steps, "wait", "waits") + " in a call" +
                               (kind.first != 0 ? ", in loops of this unit" : "");
      if (signals.steps > waits.steps)
        refute(Property::structure, flat_plan_.where(signals.flat),
               text + ", so that a wait of a later call does not wait");
      refute(Property::deadlock, flat_plan_.where(waits.flat), text + ", so that a wait does not end");
    }
  }

  void check_barriers(const std::vector<std::map<uint32_t, uint64_t>>& visits) const {
    for (size_t barrier = 0; barrier < visits.size(); ++barrier) {
      uint64_t most = 0;
      for (const auto& [group, count] : visits[barrier]) most = std::max(most, count);
      for (const uint32_t group : flat_plan_.barriers[barrier]) {
        const auto found = visits[barrier].find(group);
        const uint64_t count = found == visits[barrier].end() ? 0 : found->second;
        if (count == most) continue;
        Where where;
        where.rank = flat_plan_.groups[group].rank;
        where.group = static_cast<int>(flat_plan_.groups[group].index);
        refute(Property::deadlock, where,
               "the group visits barrier " +
                   to_string(barrier - flat_plan_.rank_barriers[static_cast<size_t>(where.rank)]) + " " +
                   to_string(count) + " times and another group " + to_string(most) + " times");
      }
    }
  }

  HeldMemory memory_;
  const FlatPlan& flat_plan_;
  std::vector<std::vector<Message>> sends_, receives_;
  std::vector<Counts> signals_, waits_;
};

}  // namespace

Finding check_matching(const FlatPlan& flat_plan) { return first_finding(MatchingCheck(flat_plan)); }

}  // namespace narrowcast::plan::verify
