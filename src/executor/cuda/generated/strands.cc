#include "executor/cuda/generated/strands.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace narrowcast::executor::cuda::generated {
namespace {

// A rank's items, of all groups, in an order in which they can be executed one after another by all ranks.
std::vector<const Item*> items_of(const RankProgram& rank) {
  std::vector<const Item*> items;
  for (const GroupProgram& group : rank.groups)
    for (const Item& item : group.items)
      if (item.kind == Item::Kind::copy || item.kind == Item::Kind::reduce) items.push_back(&item);
  std::ranges::sort(items, {}, [](const Item* item) { return std::pair{item->depth, item->order}; });
  return items;
}

// Divides items into strands, which have no values in common and run on different warps.
class Strands {
 public:
  explicit Strands(std::vector<const Item*> items) : items_(std::move(items)), parent_(items_.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    std::map<Place::Location, size_t> users;  // of locations that items write
    for (const Item* item : items_)
      for (const Place& place : item->to)
        if (place.kind == Place::Kind::local) users.try_emplace(place.location(), items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      for (const auto* places : {&items_[i]->from, &items_[i]->to}) {
        for (const Place& place : *places) {
          if (place.kind != Place::Kind::local) continue;
          const auto found = users.find(place.location());
          if (found == users.end()) continue;
          if (found->second != items_.size()) parent_[root(i)] = root(found->second);
          found->second = i;
        }
      }
    }
  }

  // The i-th part that sends is together with the i-th part that only receives.
  RankStrands get() {
    std::map<size_t, std::vector<const Item*>> parts;
    for (size_t i = 0; i < items_.size(); ++i) parts[root(i)].push_back(items_[i]);
    RankStrands sending, others;
    for (auto& [number, part] : parts) {
      const bool sends = std::ranges::any_of(part, [](const Item* item) {
        return std::ranges::any_of(item->to, [](const Place& place) { return place.kind == Place::Kind::message; });
      });
      (sends ? sending : others).push_back(std::move(part));
    }
    RankStrands& strands = sending;
    for (size_t i = 0; i < others.size(); ++i) {
      if (i == strands.size()) strands.emplace_back();
      strands[i].insert(strands[i].end(), others[i].begin(), others[i].end());
    }
    return strands;
  }

 private:
  size_t root(size_t item) {
    while (parent_[item] != item) item = parent_[item] = parent_[parent_[item]];
    return item;
  }
  std::vector<const Item*> items_;
  std::vector<size_t> parent_;
};

// In reductions a warp executes a strand for every rank, as the hand-written kernels do: as many warps as there are
// strands would often not fit on the GPU at once.
RankStrands bundled(RankStrands strands, size_t of_bundle) {
  RankStrands bundles((strands.size() + of_bundle - 1) / of_bundle);
  for (size_t i = 0; i < strands.size(); ++i) {
    auto& bundle = bundles[i / of_bundle];
    bundle.insert(bundle.end(), strands[i].begin(), strands[i].end());
    std::ranges::sort(bundle, {}, [](const Item* item) { return std::pair{item->depth, item->order}; });
  }
  return bundles;
}

}  // namespace

RankStrands strands_of(const Program& program, const RankProgram& rank) {
  RankStrands strands = Strands(items_of(rank)).get();
  return program.reduces ? bundled(std::move(strands), program.ranks.size()) : strands;
}

}  // namespace narrowcast::executor::cuda::generated
