#include "executor/cuda/generated/schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "status/error.h"

namespace narrowcast::executor::cuda::generated {
namespace {

using Location = Place::Location;

// Which items come after which, with the number of messages in between as the weight.
class Dependences {
 public:
  explicit Dependences(size_t items) : edges_(items), open_(items) {}

  void add(size_t from, size_t to, int weight) {
    if (from == to) return;
    edges_[from].push_back({to, weight});
    ++open_[to];
  }
  // The largest weight of a path to each item. Returns false if there is a cycle.
  bool find_longest_paths(std::vector<int>* found) && {
    std::vector<size_t> ready;
    found->assign(open_.size(), 0);
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i] == 0) ready.push_back(i);
    for (size_t done = 0; done < ready.size(); ++done) {
      for (const Edge& edge : edges_[ready[done]]) {
        (*found)[edge.to] = std::max((*found)[edge.to], (*found)[ready[done]] + edge.weight);
        if (--open_[edge.to] == 0) ready.push_back(edge.to);
      }
    }
    return ready.size() == open_.size();
  }

 private:
  struct Edge {
    size_t to;
    int weight;
  };
  std::vector<std::vector<Edge>> edges_;
  std::vector<int> open_;  // how many edges to each item have not been followed
};

class Scheduler {
 public:
  Scheduler(const plan::Plan& plan, const std::vector<MessageEnds>& ends, Program& program)
      : plan_(plan), ends_(ends), program_(program) {}

  ncast_status run(uint32_t max_slots) {
    find_settling_items();
    if (!program_.accesses_peers && find_stages()) {
      const Program unsorted = program_;
      sort_items();
      for (const uint32_t messages_of_ring : {~0u, 4u, 2u, 1u}) {
        assign_rings(messages_of_ring);
        if (find_min_slots(max_slots)) return NCAST_OK;
      }
      program_ = unsorted;
    }
    // One micro-batch after another. A ring of the plan may need several rings to hold its messages.
    visit_items(program_, [](const ItemId&, Item& one) { one.stage = 0; });
    for (Message& message : program_.messages) message.sent_in = message.received_in = 0;
    program_.stages = 1;
    for (uint32_t messages_of_ring = ~0u; messages_of_ring != 0;
         messages_of_ring = messages_of_ring == ~0u ? 16 : messages_of_ring / 2) {
      assign_rings(messages_of_ring);
      if (find_min_slots(max_slots)) return NCAST_OK;
    }
    return fail(NCAST_UNSUPPORTED,
                "the plan '%s' needs more than %u rings between two ranks, or more than %u slots in each, to complete",
                plan_.name.c_str(), max_rings, max_slots);
  }

 private:
  Item& item(const ItemId& id) { return program_.ranks[static_cast<size_t>(id.rank)].groups[id.group].items[id.item]; }

  // Local places with equal locations may be the same memory, as input and output may be.
  Location location(int rank, const Place& place) const {
    return plan_.in_place == plan::InPlace::no ? place.location() : location_in_place(plan_, rank, place);
  }

  // Stores are asynchronous: an item that accesses what its group has stored waits for the store.
  void find_settling_items() {
    for (int rank = 0; rank < program_.rank_count(); ++rank) {
      for (GroupProgram& group : program_.ranks[static_cast<size_t>(rank)].groups) {
        std::set<Location> stored;
        for (Item& one : group.items) {
          const auto accesses_stored = [&](const std::vector<Place>& places) {
            return std::ranges::any_of(places, [&](const Place& place) {
              return place.kind == Place::Kind::local && stored.contains(location(rank, place));
            });
          };
          one.settles = accesses_stored(one.from) || accesses_stored(one.to);
          for (const Place& place : one.to)
            if (place.kind == Place::Kind::local) stored.insert(location(rank, place));
        }
      }
    }
  }

  bool find_min_slots(uint32_t max_slots) {
    if (program_.rings > max_rings) return false;
    for (uint32_t slots = channel::ChannelLayout::min_slots; slots <= max_slots; slots *= 2) {
      program_.min_slots = slots;
      if (completes(program_, slots)) return true;
    }
    return false;
  }

  // The stage of an item: the most messages on a path of dependences that leads to it. Returns false if there is a
  // cycle.
  bool find_stages() {
    std::vector<ItemId> ids;
    std::map<ItemId, size_t> index;
    visit_items(program_, [&](const ItemId& id, const Item&) {
      index[id] = ids.size();
      ids.push_back(id);
    });
    Dependences dependences(ids.size());
    const auto add = [&](size_t from, size_t to, int weight) { dependences.add(from, to, weight); };
    for (const MessageEnds& ends : ends_) add(index[ends.sender], index[ends.receiver], 1);
    std::map<std::tuple<int, uint32_t>, size_t> published;  // by rank and point
    visit_items(program_, [&](const ItemId& id, const Item& one) {
      if (one.kind == Item::Kind::publish) published[{id.rank, one.point}] = index[id];
    });
    for (int rank = 0; rank < program_.rank_count(); ++rank) {
      const std::vector<GroupProgram>& groups = program_.ranks[static_cast<size_t>(rank)].groups;
      for (uint32_t group = 0; group < groups.size(); ++group) {
        std::map<Location, std::vector<size_t>> readers;
        std::map<Location, size_t> writer;
        std::optional<size_t> awaited;  // the last await: everything after it depends on it
        uint32_t unpublished = 0;       // the first item that may be in a later stage than the last publish
        for (uint32_t i = 0; i < groups[group].items.size(); ++i) {
          const Item& one = groups[group].items[i];
          const size_t self = index[{rank, group, i}];
          if (awaited) add(*awaited, self, 0);
          if (one.kind == Item::Kind::await) {
            add(published.at({rank, one.point}), self, 0);
            awaited = self;
          }
          if (one.kind == Item::Kind::publish) {
            for (uint32_t before = unpublished; before < i; ++before) add(index[{rank, group, before}], self, 0);
            unpublished = i;
          }
          for (const Place& place : one.from) {
            if (place.kind != Place::Kind::local) continue;
            const Location at = location(rank, place);
            if (const auto found = writer.find(at); found != writer.end()) add(found->second, self, 0);
            readers[at].push_back(self);
          }
          for (const Place& place : one.to) {
            if (place.kind != Place::Kind::local) continue;
            const Location at = location(rank, place);
            if (const auto found = writer.find(at); found != writer.end()) add(found->second, self, 0);
            for (const size_t reader : readers[at]) add(reader, self, 0);
            readers[at].clear();
            writer[at] = self;
          }
        }
      }
    }
    std::vector<int> stage;
    if (!std::move(dependences).find_longest_paths(&stage)) return false;
    const int last = stage.empty() ? 0 : *std::ranges::max_element(stage);
    if (last > ItemHead::max_stage - 2) return false;
    for (size_t i = 0; i < ids.size(); ++i) item(ids[i]).stage = item(ids[i]).depth = stage[i];
    program_.is_staged = true;
    for (size_t i = 0; i < ends_.size(); ++i) {
      program_.messages[i].sent_in = item(ends_[i].sender).stage;
      program_.messages[i].received_in = item(ends_[i].receiver).stage;
    }
    program_.stages = last + 1;
    return true;
  }

  // Messages of a channel share a ring if they are received the same number of stages after they are sent, because then
  // both ends order them in the same way.
  void assign_rings(uint32_t messages_of_ring = ~0u) {
    // By channel, number of stages, and part of the messages.
    std::map<std::tuple<uint32_t, int, uint32_t>, uint32_t> rings;
    std::map<std::pair<int, int>, uint32_t> count;  // of the rings between two ranks
    std::map<uint32_t, uint32_t> number;            // of the messages of a channel
    program_.rings = 1;
    program_.shares_rings = false;
    std::set<std::tuple<int, int, uint32_t>> used;
    for (Message& message : program_.messages) {
      const uint32_t part = number[message.channel]++ / messages_of_ring;
      uint32_t& of_ranks = count[{message.from, message.to}];
      const auto [found, is_new] =
          rings.try_emplace({message.channel, message.received_in - message.sent_in, part}, of_ranks);
      if (is_new) ++of_ranks;
      message.ring = found->second;
      if (!used.insert({message.from, message.to, message.ring}).second) program_.shares_rings = true;
      program_.rings = std::max(program_.rings, of_ranks);
    }
  }

  void sort_items() {
    for (RankProgram& rank : program_.ranks)
      for (GroupProgram& group : rank.groups)
        std::ranges::sort(group.items, {}, [](const Item& item) { return std::pair{item.stage, item.order}; });
  }

  const plan::Plan& plan_;
  const std::vector<MessageEnds>& ends_;
  Program& program_;
};

}  // namespace

ncast_status schedule(const plan::Plan& plan, const std::vector<MessageEnds>& ends, uint32_t max_slots,
                      Program* program) {
  return Scheduler(plan, ends, *program).run(max_slots);
}

}  // namespace narrowcast::executor::cuda::generated
