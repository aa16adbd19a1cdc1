#include "plan/verify/model_checker.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

namespace narrowcast::plan::verify::testing {

namespace {

struct Fault {
  std::string text;
};

// A value in memory: rank, buffer after aliasing, chunk, element.
struct Element {
  int rank;
  Buffer buffer;
  uint32_t chunk;
  int element;
  auto operator<=>(const Element&) const = default;
};

// How the threads of a group divide an access; threads of one group do not conflict if it is the same.
struct Division {
  Buffer buffer;
  uint32_t chunk, count;
  bool packets;
  bool operator==(const Division&) const = default;
};

struct Access {
  Element element;
  bool is_write;
  bool is_packet;
  Division division;
};

enum class Part : uint8_t { idle, begun, posted };

struct Thread {
  uint8_t step = 0;
  Part part = Part::idle;
  auto operator<=>(const Thread&) const = default;
};

struct EngineItem {
  uint8_t step;      // of the group
  uint8_t position;  // among the destinations; 255: a signal
  auto operator<=>(const EngineItem&) const = default;
};

struct State {
  std::vector<uint8_t> calls;               // of each rank: twice the call, plus 1 while it runs
  std::vector<std::vector<Thread>> groups;  // of each group, its threads
  std::vector<uint8_t> counts;              // of each channel: messages in flight, or the semaphore
  std::map<Element, uint8_t> packets;       // the call in which they were written, plus 1
  std::map<std::pair<size_t, uint32_t>, std::vector<EngineItem>> engines;  // of groups and channels: what is queued
  auto operator<=>(const State&) const = default;

  std::string key() const {
    std::string text(calls.begin(), calls.end());
    for (const auto& threads : groups)
      for (const Thread& thread : threads) {
        text += static_cast<char>(thread.step);
        text += static_cast<char>(thread.part);
      }
    text.append(counts.begin(), counts.end());
    for (const auto& [element, call] : packets) {
      text += static_cast<char>(element.rank);
      text += static_cast<char>(element.chunk);
      text += static_cast<char>(element.element);
      text += static_cast<char>(call);
    }
    for (const auto& [engine, items] : engines) {
      text += static_cast<char>(engine.first);
      text += static_cast<char>(engine.second);
      text += static_cast<char>(items.size());
      for (const EngineItem& item : items) {
        text += static_cast<char>(item.step);
        text += static_cast<char>(item.position);
      }
    }
    return text;
  }
};

class Explorer {
 public:
  Explorer(const Plan& plan, bool in_place, int calls) : plan_(plan), in_place_(in_place), calls_(calls) {
    for (int rank = 0; rank < plan.rank_count(); ++rank)
      for (size_t group = 0; group < plan.ranks[static_cast<size_t>(rank)].groups.size(); ++group)
        groups_.emplace_back(rank, group);
    threads_ = plan.threads == Threads::independent ? 2 : 1;
    is_dependence_.resize(groups_.size());
    for (size_t i = 0; i < groups_.size(); ++i) is_dependence_[i].resize(steps(i).size());
    for (size_t i = 0; i < groups_.size(); ++i)
      for (const Step& step : steps(i))
        for (const StepId& id : step.after) is_dependence_[group_of(groups_[i].first, id.group)][id.step] = true;
  }

  Exploration run(size_t max_states) {
    Exploration exploration;
    try {
      explore_all(max_states, exploration);
      if (exploration.outcome == Outcome::correct)
        for (uint32_t seed = 0; seed < 6; ++seed) compute_results(seed);
    } catch (const Fault& fault) {
      exploration.outcome = Outcome::incorrect;
      exploration.fault = fault.text;
    }
    return exploration;
  }

 private:
  // --- the plan

  const std::vector<Step>& steps(size_t group) const {
    return plan_.ranks[static_cast<size_t>(groups_[group].first)].groups[groups_[group].second].steps;
  }
  size_t group_of(int rank, size_t index) const {
    const auto found = std::find(groups_.begin(), groups_.end(), std::pair(rank, index));
    return static_cast<size_t>(found - groups_.begin());
  }
  bool is_port(const Operand& operand) const {
    return operand.place == Place::remote && plan_.channels[operand.channel].kind == ChannelKind::port;
  }

  Element element_at(int rank, Buffer buffer, uint32_t chunk, int element) const {
    const uint32_t input = plan_.input_chunks(rank), output = plan_.output_chunks(rank);
    if (in_place_ && buffer != Buffer::scratch && input != 0 && output != 0) {
      const Buffer large = input > output ? Buffer::input : Buffer::output;
      if (buffer != large && input != output) chunk += static_cast<uint32_t>(rank) * std::min(input, output);
      buffer = large;
    }
    return {rank, buffer, chunk, element};
  }

  std::vector<int> ranks_of(int rank, const Operand& operand) const {
    if (operand.place == Place::local) return {rank};
    const Channel& channel = plan_.channels[operand.channel];
    if (operand.place == Place::everywhere) return channel.ranks;
    return {channel.from == rank ? channel.to : channel.from};
  }

  // The elements of a location operand that a thread accesses; of all threads if thread is -1.
  std::vector<Access> accesses_of(int rank, const Step& step, const Operand& operand, bool is_write, int thread,
                                  int call) const {
    std::vector<Access> accesses;
    if (operand.place == Place::message) return accesses;
    const int elements = static_cast<int>(step.count) * threads_, part = elements / threads_;
    for (const int target : ranks_of(rank, operand))
      for (int i = 0; i < elements; ++i) {
        if (thread >= 0 && i / part != thread) continue;
        uint32_t chunk = operand.chunk + static_cast<uint32_t>(i / threads_);
        if (operand.buffer == Buffer::scratch && plan_.scratch_copies == 2 && call % 2 == 1) chunk += 100;
        const Element element = element_at(target, operand.buffer, chunk, i % threads_);
        const Element first = element_at(target, operand.buffer, operand.chunk, 0);
        accesses.push_back(
            {element, is_write, operand.packets, {first.buffer, first.chunk, step.count, operand.packets}});
      }
    return accesses;
  }

  // What the threads of the group access themselves; the rest is done by engines.
  std::vector<Access> own_accesses(size_t group, size_t index, int thread, int call) const {
    const Step& step = steps(group)[index];
    const int rank = groups_[group].first;
    std::vector<Access> accesses;
    const bool gets_by_port =
        std::any_of(step.from.begin(), step.from.end(), [&](const Operand& o) { return is_port(o); });
    bool reads = false;
    for (const Operand& to : step.to) {
      if (is_port(to) || gets_by_port) continue;
      reads = true;
      for (const Access& access : accesses_of(rank, step, to, true, thread, call)) accesses.push_back(access);
    }
    if (reads)
      for (const Operand& from : step.from)
        for (const Access& access : accesses_of(rank, step, from, false, thread, call)) accesses.push_back(access);
    return accesses;
  }

  // The operand whose channel's engine executes destination `position` of the step; NULL if the group does.
  const Operand* engine_operand(const Step& step, size_t position) const {
    if (is_port(step.to[position])) return &step.to[position];
    for (const Operand& from : step.from)
      if (is_port(from)) return &from;
    return nullptr;
  }

  std::vector<Access> engine_accesses(size_t group, const EngineItem& item, int call) const {
    std::vector<Access> accesses;
    if (item.position == 255) return accesses;
    const Step& step = steps(group)[item.step];
    const int rank = groups_[group].first;
    accesses = accesses_of(rank, step, step.to[item.position], true, -1, call);
    for (const Operand& from : step.from)
      for (const Access& access : accesses_of(rank, step, from, false, -1, call)) accesses.push_back(access);
    return accesses;
  }

  // Whether ending this step makes the thread's earlier writes visible to whoever it tells.
  bool releases(size_t group, size_t index, int thread) const {
    const Step& step = steps(group)[index];
    if (is_dependence_[group][index]) return true;
    switch (step.kind) {
      case StepKind::barrier: return true;
      case StepKind::sync: return threads_ > 1;
      case StepKind::signal:
        return thread == 0 && std::any_of(step.channels.begin(), step.channels.end(),
                                          [&](uint32_t channel) { return !is_relaxed(group, index, channel); });
      default: return false;
    }
  }
  // Whether the signal, or the wait that sees it, is relaxed. Of channels that several groups wait for, and of
  // semaphores that do not begin with 0, only the signal counts.
  bool is_relaxed(size_t group, size_t index, uint32_t channel) const {
    if (steps(group)[index].relaxed) return true;
    if (plan_.channels[channel].initial != 0) return false;
    size_t position = 0;
    for (size_t i = 0; i < index; ++i)
      if (steps(group)[i].kind == StepKind::signal)
        position +=
            static_cast<size_t>(std::count(steps(group)[i].channels.begin(), steps(group)[i].channels.end(), channel));
    std::set<size_t> waiters;
    std::vector<bool> waits;
    for (size_t other = 0; other < groups_.size(); ++other)
      for (const Step& step : steps(other)) {
        const auto count = std::count(step.channels.begin(), step.channels.end(), channel);
        if (step.kind == StepKind::signal && count != 0 && other != group) return false;
        if (step.kind != StepKind::wait || count == 0) continue;
        waiters.insert(other);
        waits.insert(waits.end(), static_cast<size_t>(count), step.relaxed);
      }
    return waiters.size() == 1 && position < waits.size() && waits[position];
  }

  // Whether the step sends a message that is not packets.
  bool releases_by_message(const Step& step) const {
    return threads_ == 1 && std::any_of(step.to.begin(), step.to.end(), [&](const Operand& to) {
             return to.place == Place::message && !plan_.channels[to.channel].packets;
           });
  }

  // --- states

  int call_of(const State& state, int rank) const { return state.calls[static_cast<size_t>(rank)] / 2; }
  bool is_running(const State& state, int rank) const { return state.calls[static_cast<size_t>(rank)] % 2 == 1; }

  State initial() const {
    State state;
    state.calls.assign(plan_.ranks.size(), 0);
    for (size_t i = 0; i < groups_.size(); ++i) state.groups.emplace_back(static_cast<size_t>(threads_));
    for (const Channel& channel : plan_.channels) state.counts.push_back(static_cast<uint8_t>(channel.initial));
    return state;
  }

  struct Active {
    size_t actor;  // group; or beyond: engines and users
    int thread;
    Access access;
  };

  std::vector<Active> active_accesses(const State& state) const {
    std::vector<Active> active;
    for (size_t group = 0; group < groups_.size(); ++group) {
      const int rank = groups_[group].first;
      if (!is_running(state, rank)) continue;
      const int call = call_of(state, rank);
      for (int thread = 0; thread < threads_; ++thread) {
        const Thread& at = state.groups[group][static_cast<size_t>(thread)];
        // Writes that are not released, of steps before this one.
        for (size_t index = at.step; index-- > 0;) {
          if (releases(group, index, thread)) break;
          for (const Access& access : own_accesses(group, index, thread, call))
            if (access.is_write) active.push_back({group, thread, access});
          if (releases_by_message(steps(group)[index])) break;
        }
        if (at.part == Part::idle) continue;
        for (const Access& access : own_accesses(group, at.step, thread, call))
          if (access.is_write || at.part == Part::begun) active.push_back({group, thread, access});
      }
    }
    size_t actor = groups_.size();
    for (const auto& [engine, items] : state.engines) {
      for (const EngineItem& item : items)
        for (const Access& access : engine_accesses(engine.first, item, call_of(state, groups_[engine.first].first)))
          active.push_back({actor, 0, access});
      ++actor;
    }
    for (int rank = 0; rank < plan_.rank_count(); ++rank) {
      if (is_running(state, rank)) continue;
      for (const Buffer buffer : {Buffer::input, Buffer::output})
        for (uint32_t chunk = 0; chunk < plan_.buffer_chunks(rank, buffer); ++chunk)
          for (int element = 0; element < threads_; ++element)
            active.push_back(
                {actor + static_cast<size_t>(rank), 0, {element_at(rank, buffer, chunk, element), true, false, {}}});
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
      return one.actor < groups_.size() ? call_of(state, groups_[one.actor].first) : -1;
    };
    const Active& writer = a.access.is_write ? a : b;
    if (writer.actor >= groups_.size()) return true;
    return call(a) == call(b);
  }

  template <typename Visit>
  void successors(const State& state, Visit visit) const {
    for (int rank = 0; rank < plan_.rank_count(); ++rank)
      if (!is_running(state, rank) && call_of(state, rank) < calls_) {
        State next = state;
        ++next.calls[static_cast<size_t>(rank)];
        finish_call(next, rank);
        visit(std::move(next));
      }
    for (size_t group = 0; group < groups_.size(); ++group)
      if (is_running(state, groups_[group].first))
        for (int thread = 0; thread < threads_; ++thread) advance(state, group, thread, visit);
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
    if (item.position == 255)
      ++state.counts[engine.second];
    else
      set_packets(state, engine.first, item.step, item.position, -1);
  }

  // Enters the user's phase if all groups of the rank are at their end.
  void finish_call(State& state, int rank) const {
    for (size_t group = 0; group < groups_.size(); ++group) {
      if (groups_[group].first != rank) continue;
      for (const Thread& thread : state.groups[group])
        if (thread.step != steps(group).size()) return;
    }
    for (size_t group = 0; group < groups_.size(); ++group)
      if (groups_[group].first == rank)
        for (Thread& thread : state.groups[group]) thread = {};
    ++state.calls[static_cast<size_t>(rank)];
  }

  template <typename Visit>
  void advance(const State& state, size_t group, int thread, Visit visit) const {
    const Thread& at = state.groups[group][static_cast<size_t>(thread)];
    if (at.step == steps(group).size()) return;
    const Step& step = steps(group)[at.step];
    if (at.part == Part::idle && !can_begin(state, group, step, thread)) return;
    State next = state;
    Thread& moved = next.groups[group][static_cast<size_t>(thread)];
    const auto end = [&] {
      moved.part = Part::idle;
      ++moved.step;
      finish_call(next, groups_[group].first);
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
    for (const Thread& thread : state.groups[group_of(rank, id.group)])
      if (thread.step <= id.step) return false;
    return true;
  }

  bool can_begin(const State& state, size_t group, const Step& step, int thread) const {
    const int rank = groups_[group].first, call = call_of(state, rank);
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
      for (const Access& access : accesses_of(rank, step, from, false, thread, call)) {
        const auto found = state.packets.find(access.element);
        if (found == state.packets.end() || found->second != call + 1) return false;
      }
    }
    for (const Operand& to : step.to)
      if (to.place == Place::message &&
          state.counts[to.channel] + ++sent[to.channel] > static_cast<int>(plan_.channels[to.channel].depth))
        return false;
    return true;
  }

  void begin(State& state, size_t group, const Step& step, size_t index, int thread) const {
    if (thread != 0) return;
    for (size_t position = 0; position < step.to.size(); ++position)
      if (const Operand* operand = engine_operand(step, position))
        state.engines[{group, operand->channel}].push_back(
            {static_cast<uint8_t>(index), static_cast<uint8_t>(position)});
  }

  // Messages are taken and sent, and packets stored. The last thread does so for messages.
  void post(State& state, size_t group, const Step& step, size_t index, int thread) const {
    bool is_last = true;
    for (int other = 0; other < threads_; ++other) {
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
      if (engine_operand(step, position) == nullptr) set_packets(state, group, index, position, thread);
  }

  void set_packets(State& state, size_t group, size_t index, size_t position, int thread) const {
    const Step& step = steps(group)[index];
    if (!step.to[position].packets) return;
    const int rank = groups_[group].first, call = call_of(state, rank);
    for (const Access& access : accesses_of(rank, step, step.to[position], true, thread, call)) {
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
        queued->second.push_back({0, 255});
      else if (++state.counts[channel] == 250)
        throw Fault{"a semaphore overflows"};
    }
  }

  // Moves all threads of the group, or of the barrier's groups, if they are all there.
  bool pass_together(State& state, size_t group, const Step& step) const {
    const int rank = groups_[group].first;
    std::vector<size_t> members = {group};
    if (step.kind == StepKind::barrier) {
      members.clear();
      for (const uint32_t member : plan_.ranks[static_cast<size_t>(rank)].barriers[step.barrier])
        members.push_back(group_of(rank, member));
    }
    for (const size_t member : members)
      for (int thread = 0; thread < threads_; ++thread) {
        const Thread& at = state.groups[member][static_cast<size_t>(thread)];
        if (at.part != Part::idle || at.step == steps(member).size()) return false;
        const Step& other = steps(member)[at.step];
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
    for (size_t group = 0; group < groups_.size(); ++group)
      for (const Step& step : steps(group)) {
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

  // --- results: contributions of input chunks, in one random order of one call

  using Contributions = std::multiset<std::pair<int, uint32_t>>;
  struct Cell {
    bool is_defined = false, is_packet = false;
    Contributions contributions;
  };
  using Place3 = std::tuple<int, Buffer, uint32_t>;

  Place3 place_at(int rank, Buffer buffer, uint32_t chunk) const {
    const Element element = element_at(rank, buffer, chunk, 0);
    return {element.rank, element.buffer, element.chunk};
  }

  void compute_results(uint32_t seed) {
    std::mt19937 random(seed);
    std::map<Place3, Cell> memory;
    for (int rank = 0; rank < plan_.rank_count(); ++rank)
      for (uint32_t chunk = 0; chunk < plan_.input_chunks(rank); ++chunk)
        memory[place_at(rank, Buffer::input, chunk)] = {true, false, {{rank, chunk}}};
    std::vector<std::vector<std::vector<Contributions>>> rings(plan_.channels.size());
    std::vector<size_t> next(groups_.size(), 0);
    std::vector<int> semaphores;
    for (const Channel& channel : plan_.channels) semaphores.push_back(static_cast<int>(channel.initial));
    std::set<Place3> packets;
    while (true) {
      std::vector<size_t> order(groups_.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      bool moved = false;
      for (const size_t group : order)
        if (next[group] < steps(group).size() && execute(group, next, memory, rings, semaphores, packets)) {
          moved = true;
          break;
        }
      if (!moved) break;
    }
    check_results(memory);
  }

  bool execute(size_t group, std::vector<size_t>& next, std::map<Place3, Cell>& memory,
               std::vector<std::vector<std::vector<Contributions>>>& rings, std::vector<int>& semaphores,
               std::set<Place3>& packets) const {
    const Step& step = steps(group)[next[group]];
    const int rank = groups_[group].first;
    for (const StepId& id : step.after)
      if (next[group_of(rank, id.group)] <= id.step) return false;
    if (step.kind == StepKind::barrier) {
      for (const uint32_t member : plan_.ranks[static_cast<size_t>(rank)].barriers[step.barrier]) {
        const size_t other = group_of(rank, member);
        if (next[other] == steps(other).size() || steps(other)[next[other]].kind != StepKind::barrier ||
            steps(other)[next[other]].barrier != step.barrier)
          return false;
      }
      for (const uint32_t member : plan_.ranks[static_cast<size_t>(rank)].barriers[step.barrier])
        ++next[group_of(rank, member)];
      return true;
    }
    if (step.kind == StepKind::wait) {
      std::vector<int> left = semaphores;
      for (const uint32_t channel : step.channels)
        if (--left[channel] < 0) return false;
      semaphores = left;
    }
    if (step.kind == StepKind::signal)
      for (const uint32_t channel : step.channels) ++semaphores[channel];
    if (!step.from.empty() && !move(rank, step, memory, rings, packets)) return false;
    ++next[group];
    return true;
  }

  bool move(int rank, const Step& step, std::map<Place3, Cell>& memory,
            std::vector<std::vector<std::vector<Contributions>>>& rings, std::set<Place3>& packets) const {
    std::map<uint32_t, size_t> received, sent;
    for (const Operand& from : step.from) {
      if (from.place == Place::message && rings[from.channel].size() < ++received[from.channel]) return false;
      if (!from.packets) continue;
      for (const int target : ranks_of(rank, from))
        for (uint32_t i = 0; i < step.count; ++i)
          if (packets.count(place_at(target, from.buffer, from.chunk + i)) == 0) return false;
    }
    for (const Operand& to : step.to)
      if (to.place == Place::message &&
          rings[to.channel].size() + ++sent[to.channel] > plan_.channels[to.channel].depth)
        return false;
    std::vector<Contributions> sums(step.count);
    for (const Operand& from : step.from) {
      if (from.place == Place::message) {
        const std::vector<Contributions> values = rings[from.channel].front();
        rings[from.channel].erase(rings[from.channel].begin());
        if (values.size() != step.count) throw Fault{"a message has another size"};
        for (uint32_t i = 0; i < step.count; ++i) sums[i].insert(values[i].begin(), values[i].end());
        continue;
      }
      for (const int target : ranks_of(rank, from))
        for (uint32_t i = 0; i < step.count; ++i) {
          const Cell& cell = memory[place_at(target, from.buffer, from.chunk + i)];
          if (!cell.is_defined || cell.is_packet != from.packets) throw Fault{"an undefined value is read"};
          sums[i].insert(cell.contributions.begin(), cell.contributions.end());
        }
    }
    for (const Operand& to : step.to) {
      if (to.place == Place::message) {
        rings[to.channel].push_back(sums);
        continue;
      }
      for (const int target : ranks_of(rank, to))
        for (uint32_t i = 0; i < step.count; ++i) {
          const Place3 place = place_at(target, to.buffer, to.chunk + i);
          memory[place] = {true, to.packets, sums[i]};
          if (to.packets) packets.insert(place);
        }
    }
    return true;
  }

  void check_results(std::map<Place3, Cell>& memory) const {
    const uint32_t chunks = plan_.chunks;
    for (int rank = 0; rank < plan_.rank_count(); ++rank)
      for (uint32_t chunk = 0; chunk < plan_.output_chunks(rank); ++chunk) {
        Contributions wanted;
        const auto own = static_cast<uint32_t>(rank);
        const uint32_t piece = chunk / chunks, index = chunk % chunks;
        for (int source = 0; source < plan_.rank_count(); ++source) {
          const bool is_piece = static_cast<uint32_t>(source) == piece;
          switch (plan_.operation) {
            case Operation::all_reduce:
            case Operation::reduce: wanted.insert({source, chunk}); break;
            case Operation::reduce_scatter: wanted.insert({source, own * chunks + chunk}); break;
            case Operation::all_gather:
            case Operation::gather:
              if (is_piece) wanted.insert({source, index});
              break;
            case Operation::all_to_all:
              if (is_piece) wanted.insert({source, own * chunks + index});
              break;
            case Operation::broadcast:
              if (source == plan_.root) wanted.insert({source, chunk});
              break;
            default:
              if (source == plan_.root) wanted.insert({source, own * chunks + chunk});
          }
        }
        const Cell& cell = memory[place_at(rank, Buffer::output, chunk)];
        if (!cell.is_defined || cell.contributions != wanted) throw Fault{"an output is wrong"};
      }
  }

  const Plan& plan_;
  const bool in_place_;
  const int calls_;
  int threads_ = 1;
  std::vector<std::pair<int, size_t>> groups_;
  std::vector<std::vector<bool>> is_dependence_;
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
