// Executes programs symbolically.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "executor/cuda/generated/program.h"

namespace narrowcast::executor::cuda::generated {
namespace {

// Runs the groups of all ranks until none can continue. step(rank, group) executes the next part of a group and returns
// false if it must wait or has ended.
template <typename Step>
void run_groups(const Program& program, Step step) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (int rank = 0; rank < program.rank_count(); ++rank)
      for (uint32_t group = 0; group < program.ranks[static_cast<size_t>(rank)].groups.size(); ++group)
        while (step(rank, group)) moved = true;
  }
}

// Points and semaphores, counted in micro-batches.
struct Events {
  std::map<std::tuple<int, uint32_t>, uint32_t> points;  // by rank and point: how many micro-batches have reached it
  std::vector<uint32_t> semaphores;

  explicit Events(const Program& program) {
    for (const Semaphore& semaphore : program.semaphores) semaphores.push_back(semaphore.initial);
  }
  // Executes an item that moves nothing. Returns false if it must wait.
  bool execute(int rank, const Item& item, uint32_t block) {
    switch (item.kind) {
      case Item::Kind::publish: points[{rank, item.point}] = block + 1; return true;
      case Item::Kind::await: return points[{rank, item.point}] >= block + 1;
      case Item::Kind::signal: ++semaphores[item.channel]; return true;
      case Item::Kind::wait:
        if (semaphores[item.channel] == 0) return false;
        --semaphores[item.channel];
        return true;
      default: return true;
    }
  }
};

bool moves_values(const Item& item) { return item.kind == Item::Kind::copy || item.kind == Item::Kind::reduce; }

}  // namespace

bool trace_values(const plan::Plan& plan, Program* program) {
  Events events(*program);
  // Values of a chunk: how many contributions they contain, and the number of the chunk in its piece.
  struct Values {
    uint32_t contributions, chunk;
  };
  std::vector<std::deque<Values>> arrived(program->messages.size());
  std::map<std::pair<int, Place::Location>, Values> written;
  uint32_t order = 0;
  std::vector<std::vector<size_t>> next;
  next.reserve(program->ranks.size());
  for (const RankProgram& rank : program->ranks) next.emplace_back(rank.groups.size());
  const auto key = [&](int rank, const Place& place) {
    const int owner = place.kind == Place::Kind::remote ? place.rank : rank;
    const bool is_in_place = plan.in_place == plan::InPlace::yes;
    return std::pair{owner, is_in_place ? location_in_place(plan, owner, place) : place.location()};
  };
  // The values of a source; 0 contributions if they are not there yet.
  const auto values_of = [&](int rank, const Place& place) -> Values {
    if (place.kind == Place::Kind::message)
      return arrived[place.message].empty() ? Values{0, 0} : arrived[place.message].front();
    if (const auto found = written.find(key(rank, place)); found != written.end()) return found->second;
    // An input, or something that the verifier rejects.
    const bool is_scratch = place.buffer == plan::Buffer::scratch;
    return {place.packets ? 0u : 1u, is_scratch ? RankProgram::scratch_chunk : place.chunk % plan.chunks};
  };
  run_groups(*program, [&](int rank, uint32_t group) {
    std::vector<Item>& items = program->ranks[static_cast<size_t>(rank)].groups[group].items;
    size_t& at = next[static_cast<size_t>(rank)][group];
    if (at == items.size()) return false;
    Item& item = items[at];
    item.order = order;
    if (moves_values(item)) {
      Values values{0, 0};
      for (const Place& place : item.from) {
        const Values source = values_of(rank, place);
        if (source.contributions == 0) return false;
        values = {values.contributions + source.contributions, source.chunk};
      }
      std::vector<uint32_t>& sent_chunks = program->ranks[static_cast<size_t>(rank)].sent_chunks;
      for (const Place& place : item.from) {
        if (place.is_get()) sent_chunks.push_back(values_of(rank, place).chunk);
        if (place.kind == Place::Kind::message) arrived[place.message].pop_front();
      }
      item.finishes =
          item.kind == Item::Kind::reduce && values.contributions >= static_cast<uint32_t>(program->rank_count());
      for (const Place& place : item.to) {
        if (place.kind != Place::Kind::local) sent_chunks.push_back(values.chunk);
        if (place.kind == Place::Kind::message) {
          arrived[place.message].push_back(values);
        } else {
          written[key(rank, place)] = values;
        }
      }
    } else if (!events.execute(rank, item, 0)) {
      return false;
    }
    ++at;
    ++order;
    return true;
  });
  for (size_t rank = 0; rank < next.size(); ++rank)
    for (size_t group = 0; group < next[rank].size(); ++group)
      if (next[rank][group] != program->ranks[rank].groups[group].items.size()) return false;
  return true;
}

bool completes(const Program& program, uint32_t slots) {
  struct Ring {
    std::deque<uint32_t> sent;  // messages in flight
    uint32_t free, read = 0;    // slots of the sender; slots for which no credit has been returned
  };
  struct Position {
    uint32_t turn = 0;
    size_t item = 0;
    std::vector<uint32_t> passed;  // messages of the item that have been received or sent
  };
  // One warp per group, with more micro-batches than it can have in flight.
  const auto stages = static_cast<uint32_t>(program.stages);
  const uint32_t blocks = slots + stages + 2, turns = blocks + stages - 1;
  const uint32_t grant = channel::slots_of_grant(slots);
  std::map<std::tuple<int, int, uint32_t>, Ring> rings;
  for (const Message& message : program.messages) rings[{message.from, message.to, message.ring}] = {{}, slots};
  const auto ring_of = [&](uint32_t message) -> Ring& {
    const Message& of = program.messages[message];
    return rings.at({of.from, of.to, of.ring});
  };
  Events events(program);
  std::vector<std::vector<Position>> positions;
  positions.reserve(program.ranks.size());
  for (const RankProgram& rank : program.ranks) positions.emplace_back(rank.groups.size());
  const auto has_passed = [](const Position& at, const Place& place) {
    return std::ranges::find(at.passed, place.message) != at.passed.end();
  };
  bool is_ordered = true;  // both ends of each ring have the same order

  run_groups(program, [&](int rank, uint32_t group) {
    const std::vector<Item>& items = program.ranks[static_cast<size_t>(rank)].groups[group].items;
    Position& at = positions[static_cast<size_t>(rank)][group];
    if (at.turn == turns || !is_ordered) return false;
    if (at.item == items.size()) {
      at = {at.turn + 1, 0, {}};
      return true;
    }
    const Item& item = items[at.item];
    const uint32_t block = at.turn - static_cast<uint32_t>(item.stage);
    if (block < blocks) {
      if (!moves_values(item)) {
        if (!events.execute(rank, item, block)) return false;
      } else {
        bool waits = false;
        for (const Place& place : item.from) {
          if (place.kind != Place::Kind::message || has_passed(at, place)) continue;
          Ring& ring = ring_of(place.message);
          if (ring.sent.empty()) {
            waits = true;
            continue;
          }
          is_ordered = is_ordered && ring.sent.front() == place.message;
          ring.sent.pop_front();
          if (++ring.read == grant) {
            ring.free += grant;
            ring.read = 0;
          }
          at.passed.push_back(place.message);
        }
        if (waits) return false;
        for (const Place& place : item.to) {
          if (place.kind != Place::Kind::message || has_passed(at, place)) continue;
          Ring& ring = ring_of(place.message);
          if (ring.free == 0) return false;
          --ring.free;
          ring.sent.push_back(place.message);
          at.passed.push_back(place.message);
        }
      }
    }
    ++at.item;
    at.passed.clear();
    return true;
  });
  if (!is_ordered) return false;
  for (const auto& of_rank : positions)
    for (const Position& at : of_rank)
      if (at.turn != turns) return false;
  return true;
}

}  // namespace narrowcast::executor::cuda::generated
