#include "plan/verify/model_checker.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "plan/verify/model_state.h"
#include "plan/verify/plan_view.h"
#include "plan/verify/result_check.h"

namespace narrowcast::plan::verify::testing {

namespace {

class Explorer {
 public:
  Explorer(const Plan& plan, bool in_place, int calls) : view_(plan, in_place), calls_(calls) {}

  Exploration run(size_t max_states) {
    Exploration exploration;
    try {
      explore_all(max_states, exploration);
      if (exploration.outcome == Outcome::correct)
        for (uint32_t seed = 0; seed < 6; ++seed) check_results(view_, seed);
    } catch (const Fault& fault) {
      exploration.outcome = Outcome::incorrect;
      exploration.fault = fault.text;
    }
    return exploration;
  }

 private:
  int call_of(const State& state, int rank) const { return state.calls[static_cast<size_t>(rank)] / 2; }
  bool is_running(const State& state, int rank) const { return state.calls[static_cast<size_t>(rank)] % 2 == 1; }

  State initial() const {
    State state;
    state.calls.assign(view_.plan.ranks.size(), 0);
    for (size_t i = 0; i < view_.groups.size(); ++i) state.groups.emplace_back(static_cast<size_t>(view_.threads));
    for (const Channel& channel : view_.plan.channels) state.counts.push_back(static_cast<uint8_t>(channel.initial));
    return state;
  }

  struct Active {
    size_t actor;  // group; or beyond: engines and users
    int thread;
    Access access;
  };

  std::vector<Active> active_accesses(const State& state) const {
    std::vector<Active> active;
    for (size_t group = 0; group < view_.groups.size(); ++group) {
      const int rank = view_.groups[group].first;
      if (!is_running(state, rank)) continue;
      const int call = call_of(state, rank);
      for (int thread = 0; thread < view_.threads; ++thread) {
        const Thread& at = state.groups[group][static_cast<size_t>(thread)];
        // Writes that are not released, of steps before this one.
        for (size_t index = at.step; index-- > 0;) {
          if (view_.releases(group, index, thread)) break;
          for (const Access& access : view_.own_accesses(group, index, thread, call))
            if (access.is_write) active.push_back({group, thread, access});
          if (view_.releases_by_message(view_.steps(group)[index])) break;
        }
        if (at.part == Part::idle) continue;
        for (const Access& access : view_.own_accesses(group, at.step, thread, call))
          if (access.is_write || at.part == Part::begun) active.push_back({group, thread, access});
      }
    }
    size_t actor = view_.groups.size();
    for (const auto& [engine, items] : state.engines) {
      for (const EngineItem& item : items)
        for (const Access& access :
             view_.engine_accesses(engine.first, item, call_of(state, view_.groups[engine.first].first)))
          active.push_back({actor, 0, access});
      ++actor;
    }
    for (int rank = 0; rank < view_.plan.rank_count(); ++rank) {
      if (is_running(state, rank)) continue;
      for (const Buffer buffer : {Buffer::input, Buffer::output})
        for (uint32_t chunk = 0; chunk < view_.plan.buffer_chunks(rank, buffer); ++chunk)
          for (int element = 0; element < view_.threads; ++element)
            active.push_back({actor + static_cast<size_t>(rank),
                              0,
                              {view_.element_at(rank, buffer, chunk, element), true, false, {}}});
    }
    return active;
  }

  void check_races(const State& state) const {
    std::vector<Active> active = active_accesses(state);
    std::map<Element, std::vector<const Active*>> by_element;
    for (const Active& one : active) by_element[one.access.element].push_back(&one);
    for (const auto& [element, list] : by_element)
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t j = 0; j < i; ++j) {
          const Active &a = *list[i], &b = *list[j];
          if (!a.access.is_write && !b.access.is_write) continue;
          if (a.actor == b.actor && (a.thread == b.thread || a.access.division == b.access.division)) continue;
          // A reader of packets that are being written sees all of them or waits.
          if (a.access.is_packet && b.access.is_packet && a.access.is_write != b.access.is_write &&
              reads_this_call(state, a, b))
            continue;
          throw Fault{"race on chunk " + std::to_string(element.chunk) + " of buffer " +
                      std::to_string(static_cast<int>(element.buffer)) + " of rank " + std::to_string(element.rank)};
        }
  }

  // Whether the two accesses are of the same call; their reader has waited for this packet.
  bool reads_this_call(const State& state, const Active& a, const Active& b) const {
    const auto call = [&](const Active& one) {
      return one.actor < view_.groups.size() ? call_of(state, view_.groups[one.actor].first) : -1;
    };
    const Active& writer = a.access.is_write ? a : b;
    if (writer.actor >= view_.groups.size()) return true;
    return call(a) == call(b);
  }

  template <typename Visit>
  void successors(const State& state, Visit visit) const {
    for (int rank = 0; rank < view_.plan.rank_count(); ++rank)
      if (!is_running(state, rank) && call_of(state, rank) < calls_) {
        State next = state;
        ++next.calls[static_cast<size_t>(rank)];
        finish_call(next, rank);
        visit(std::move(next));
      }
    for (size_t group = 0; group < view_.groups.size(); ++group)
      if (is_running(state, view_.groups[group].first))
        for (int thread = 0; thread < view_.threads; ++thread) advance(state, group, thread, visit);
    for (const auto& [engine, items] : state.engines) {
      State next = state;
      run_engine(next, engine);
      visit(std::move(next));
    }
  }

  void run_engine(State& state, std::pair<size_t, uint32_t> engine) const {
    std::vector<EngineItem>& items = state.engines[engine];
    const EngineItem item = items.front();
    items.erase(items.begin());
    if (items.empty()) state.engines.erase(engine);
    if (item.position == EngineItem::signal)
      ++state.counts[engine.second];
    else
      set_packets(state, engine.first, item.step, item.position, -1);
  }

  // Enters the user's phase if all groups of the rank are at their end.
  void finish_call(State& state, int rank) const {
    for (size_t group = 0; group < view_.groups.size(); ++group) {
      if (view_.groups[group].first != rank) continue;
      for (const Thread& thread : state.groups[group])
        if (thread.step != view_.steps(group).size()) return;
    }
    for (size_t group = 0; group < view_.groups.size(); ++group)
      if (view_.groups[group].first == rank)
        for (Thread& thread : state.groups[group]) thread = {};
    ++state.calls[static_cast<size_t>(rank)];
  }

  template <typename Visit>
  void advance(const State& state, size_t group, int thread, Visit visit) const {
    const Thread& at = state.groups[group][static_cast<size_t>(thread)];
    if (at.step == view_.steps(group).size()) return;
    const Step& step = view_.steps(group)[at.step];
    if (at.part == Part::idle && !can_begin(state, group, step, thread)) return;
    State next = state;
    Thread& moved = next.groups[group][static_cast<size_t>(thread)];
    const auto end = [&] {
      moved.part = Part::idle;
      ++moved.step;
      finish_call(next, view_.groups[group].first);
    };
    switch (step.kind) {
      case StepKind::signal:
      case StepKind::wait:
      case StepKind::flush:
        if (thread == 0) synchronize(next, group, step);
        end();
        break;
      case StepKind::sync:
      case StepKind::barrier:
        if (!pass_together(next, group, step)) return;
        break;
      default:
        if (at.part == Part::idle) {
          begin(next, group, step, at.step, thread);
          moved.part = Part::begun;
        } else if (at.part == Part::begun) {
          post(next, group, step, at.step, thread);
          moved.part = Part::posted;
        } else {
          end();
        }
    }
    visit(std::move(next));
  }

  bool has_completed(const State& state, int rank, const StepId& id) const {
    for (const Thread& thread : state.groups[view_.group_of(rank, id.group)])
      if (thread.step <= id.step) return false;
    return true;
  }

  bool can_begin(const State& state, size_t group, const Step& step, int thread) const {
    const int rank = view_.groups[group].first, call = call_of(state, rank);
    for (const StepId& id : step.after)
      if (!has_completed(state, rank, id)) return false;
    if (thread == 0 && step.kind == StepKind::wait) {
      std::map<uint32_t, int> needed;
      for (const uint32_t channel : step.channels)
        if (state.counts[channel] < ++needed[channel]) return false;
    }
    if (thread == 0 && step.kind == StepKind::flush)
      for (const uint32_t channel : step.channels)
        if (state.engines.count({group, channel}) != 0) return false;
    std::map<uint32_t, int> received, sent;
    for (const Operand& from : step.from) {
      if (from.place == Place::message && state.counts[from.channel] < ++received[from.channel]) return false;
      if (!from.packets) continue;
      for (const Access& access : view_.accesses_of(rank, step, from, false, thread, call)) {
        const auto found = state.packets.find(access.element);
        if (found == state.packets.end() || found->second != call + 1) return false;
      }
    }
    for (const Operand& to : step.to)
      if (to.place == Place::message &&
          state.counts[to.channel] + ++sent[to.channel] > static_cast<int>(view_.plan.channels[to.channel].depth))
        return false;
    return true;
  }

  void begin(State& state, size_t group, const Step& step, size_t index, int thread) const {
    if (thread != 0) return;
    for (size_t position = 0; position < step.to.size(); ++position)
      if (const Operand* operand = view_.engine_operand(step, position))
        state.engines[{group, operand->channel}].push_back(
            {static_cast<uint8_t>(index), static_cast<uint8_t>(position)});
  }

  // Messages are taken and sent, and packets stored. The last thread does so for messages.
  void post(State& state, size_t group, const Step& step, size_t index, int thread) const {
    bool is_last = true;
    for (int other = 0; other < view_.threads; ++other) {
      const Thread& at = state.groups[group][static_cast<size_t>(other)];
      if (other != thread && (at.step < index || (at.step == index && at.part != Part::posted))) is_last = false;
    }
    if (is_last) {
      for (const Operand& from : step.from)
        if (from.place == Place::message) --state.counts[from.channel];
      for (const Operand& to : step.to)
        if (to.place == Place::message) ++state.counts[to.channel];
    }
    for (size_t position = 0; position < step.to.size(); ++position)
      if (view_.engine_operand(step, position) == nullptr) set_packets(state, group, index, position, thread);
  }

  void set_packets(State& state, size_t group, size_t index, size_t position, int thread) const {
    const Step& step = view_.steps(group)[index];
    if (!step.to[position].packets) return;
    const int rank = view_.groups[group].first, call = call_of(state, rank);
    for (const Access& access : view_.accesses_of(rank, step, step.to[position], true, thread, call)) {
      uint8_t& written = state.packets[access.element];
      if (written == call + 1) throw Fault{"packets are written twice in a call"};
      written = static_cast<uint8_t>(call + 1);
    }
  }

  void synchronize(State& state, size_t group, const Step& step) const {
    for (const uint32_t channel : step.channels) {
      if (step.kind == StepKind::wait) --state.counts[channel];
      if (step.kind != StepKind::signal) continue;
      const auto queued = state.engines.find({group, channel});
      if (queued != state.engines.end())
        queued->second.push_back({0, EngineItem::signal});
      else if (++state.counts[channel] == 250)
        throw Fault{"a semaphore overflows"};
    }
  }

  // Moves all threads of the group, or of the barrier's groups, if they are all there.
  bool pass_together(State& state, size_t group, const Step& step) const {
    const int rank = view_.groups[group].first;
    std::vector<size_t> members = {group};
    if (step.kind == StepKind::barrier) {
      members.clear();
      for (const uint32_t member : view_.plan.ranks[static_cast<size_t>(rank)].barriers[step.barrier])
        members.push_back(view_.group_of(rank, member));
    }
    for (const size_t member : members)
      for (int thread = 0; thread < view_.threads; ++thread) {
        const Thread& at = state.groups[member][static_cast<size_t>(thread)];
        if (at.part != Part::idle || at.step == view_.steps(member).size()) return false;
        const Step& other = view_.steps(member)[at.step];
        if (other.kind != step.kind || other.barrier != step.barrier || !can_begin(state, member, other, thread))
          return false;
        if (at.step != state.groups[member][0].step) return false;
      }
    for (const size_t member : members)
      for (Thread& thread : state.groups[member]) ++thread.step;
    finish_call(state, rank);
    return true;
  }

  bool is_final(const State& state) const {
    return state.engines.empty() &&
           std::all_of(state.calls.begin(), state.calls.end(), [&](uint8_t call) { return call == 2 * calls_; });
  }

  void explore_all(size_t max_states, Exploration& exploration) {
    std::unordered_set<std::string> seen;
    std::vector<State> stack = {initial()};
    seen.insert(stack.back().key());
    while (!stack.empty()) {
      const State state = std::move(stack.back());
      stack.pop_back();
      exploration.states = seen.size();
      check_races(state);
      bool moved = false;
      successors(state, [&](State next) {
        moved = true;
        if (seen.insert(next.key()).second) stack.push_back(std::move(next));
      });
      if (!moved && !is_final(state)) throw Fault{"deadlock"};
      if (seen.size() > max_states) {
        exploration.outcome = Outcome::too_large;
        return;
      }
    }
    check_balance();
  }

  // In the last call nothing may be left over, or later calls differ from these.
  void check_balance() const {
    std::map<uint32_t, int> balance;
    for (size_t group = 0; group < view_.groups.size(); ++group)
      for (const Step& step : view_.steps(group)) {
        for (const uint32_t channel : step.channels)
          if (step.kind != StepKind::flush) balance[channel] += step.kind == StepKind::signal ? 1 : -1;
        for (const Operand& from : step.from)
          if (from.place == Place::message) --balance[from.channel];
        for (const Operand& to : step.to)
          if (to.place == Place::message) ++balance[to.channel];
      }
    for (const auto& [channel, left] : balance)
      if (left != 0) throw Fault{"channel " + std::to_string(channel) + " is not balanced"};
  }

  const PlanView view_;
  const int calls_;
};

}  // namespace

Exploration explore(const Plan& plan, int calls, size_t max_states) {
  const bool may_overlap = operation::describe(plan.operation).overlap == operation::Overlap::IN_PLACE;
  Exploration exploration;
  if (plan.in_place != InPlace::yes) exploration = Explorer(plan, false, calls).run(max_states);
  if (plan.in_place == InPlace::no || exploration.outcome != Outcome::correct ||
      (plan.in_place == InPlace::either && !may_overlap))
    return exploration;
  return Explorer(plan, true, calls).run(max_states);
}

}  // namespace narrowcast::plan::verify::testing
