#include "plan/verify/result_check.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace narrowcast::plan::verify::testing {

namespace {

// Tracks the contributions of input chunks.
class Execution {
 public:
  explicit Execution(const PlanView& view) : view_(view) {}

  void run(uint32_t seed) const {
    std::mt19937 random(seed);
    std::map<Place3, Cell> memory;
    for (int rank = 0; rank < view_.plan.rank_count(); ++rank)
      for (uint32_t chunk = 0; chunk < view_.plan.input_chunks(rank); ++chunk)
        memory[place_at(rank, Buffer::input, chunk)] = {true, false, {{rank, chunk}}};
    std::vector<std::vector<std::vector<Contributions>>> rings(view_.plan.channels.size());
    std::vector<size_t> next(view_.groups.size(), 0);
    std::vector<int> semaphores;
    for (const Channel& channel : view_.plan.channels) semaphores.push_back(static_cast<int>(channel.initial));
    std::set<Place3> packets;
    while (true) {
      std::vector<size_t> order(view_.groups.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      bool moved = false;
      for (const size_t group : order)
        if (next[group] < view_.steps(group).size() && execute(group, next, memory, rings, semaphores, packets)) {
          moved = true;
          break;
        }
      if (!moved) break;
    }
    check_results(memory);
  }

 private:
  using Contributions = std::multiset<std::pair<int, uint32_t>>;
  struct Cell {
    bool is_defined = false, is_packet = false;
    Contributions contributions;
  };
  using Place3 = std::tuple<int, Buffer, uint32_t>;

  Place3 place_at(int rank, Buffer buffer, uint32_t chunk) const {
    const Element element = view_.element_at(rank, buffer, chunk, 0);
    return {element.rank, element.buffer, element.chunk};
  }

  bool execute(size_t group, std::vector<size_t>& next, std::map<Place3, Cell>& memory,
               std::vector<std::vector<std::vector<Contributions>>>& rings, std::vector<int>& semaphores,
               std::set<Place3>& packets) const {
    const Step& step = view_.steps(group)[next[group]];
    const int rank = view_.groups[group].first;
    for (const StepId& id : step.after)
      if (next[view_.group_of(rank, id.group)] <= id.step) return false;
    if (step.kind == StepKind::barrier) {
      for (const uint32_t member : view_.plan.ranks[static_cast<size_t>(rank)].barriers[step.barrier]) {
        const size_t other = view_.group_of(rank, member);
        if (next[other] == view_.steps(other).size() || view_.steps(other)[next[other]].kind != StepKind::barrier ||
            view_.steps(other)[next[other]].barrier != step.barrier)
          return false;
      }
      for (const uint32_t member : view_.plan.ranks[static_cast<size_t>(rank)].barriers[step.barrier])
        ++next[view_.group_of(rank, member)];
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
      for (const int target : view_.ranks_of(rank, from))
        for (uint32_t i = 0; i < step.count; ++i)
          if (packets.count(place_at(target, from.buffer, from.chunk + i)) == 0) return false;
    }
    for (const Operand& to : step.to)
      if (to.place == Place::message &&
          rings[to.channel].size() + ++sent[to.channel] > view_.plan.channels[to.channel].depth)
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
      for (const int target : view_.ranks_of(rank, from))
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
      for (const int target : view_.ranks_of(rank, to))
        for (uint32_t i = 0; i < step.count; ++i) {
          const Place3 place = place_at(target, to.buffer, to.chunk + i);
          memory[place] = {true, to.packets, sums[i]};
          if (to.packets) packets.insert(place);
        }
    }
    return true;
  }

  void check_results(std::map<Place3, Cell>& memory) const {
    const uint32_t chunks = view_.plan.chunks;
    for (int rank = 0; rank < view_.plan.rank_count(); ++rank)
      for (uint32_t chunk = 0; chunk < view_.plan.output_chunks(rank); ++chunk) {
        Contributions wanted;
        const auto own = static_cast<uint32_t>(rank);
        const uint32_t piece = chunk / chunks, index = chunk % chunks;
        for (int source = 0; source < view_.plan.rank_count(); ++source) {
          const bool is_piece = static_cast<uint32_t>(source) == piece;
          switch (view_.plan.operation) {
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
              if (source == view_.plan.root) wanted.insert({source, chunk});
              break;
            default:
              if (source == view_.plan.root) wanted.insert({source, own * chunks + chunk});
          }
        }
        const Cell& cell = memory[place_at(rank, Buffer::output, chunk)];
        if (!cell.is_defined || cell.contributions != wanted) throw Fault{"an output is wrong"};
      }
  }

  const PlanView& view_;
};

}  // namespace

void check_results(const PlanView& view, uint32_t seed) { Execution(view).run(seed); }

}  // namespace narrowcast::plan::verify::testing
