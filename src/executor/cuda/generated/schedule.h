// When the warps of a generated kernel execute items: their stages and order, and the rings of messages.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "executor/cuda/generated/program.h"

namespace narrowcast::executor::cuda::generated {

// An item and its position: group, and index in the order of the plan.
struct ItemId {
  int rank;
  uint32_t group, item;
  auto operator<=>(const ItemId&) const = default;
};
template <typename Visit>
void visit_items(Program& program, Visit visit) {
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    std::vector<GroupProgram>& groups = program.ranks[static_cast<size_t>(rank)].groups;
    for (uint32_t group = 0; group < groups.size(); ++group)
      for (uint32_t i = 0; i < groups[group].items.size(); ++i) visit(ItemId{rank, group, i}, groups[group].items[i]);
  }
}

// The items that send and receive a message.
struct MessageEnds {
  ItemId sender, receiver;
};

// Between two ranks in one direction. A communicator has 16 times as many as CTAs, and each warp of a group needs its
// own.
inline constexpr uint32_t max_rings = 64;

// Finds the stages of items and the rings of messages, and which items wait for stores, and sorts the items, which are
// in the order of the plan. ends: by message. max_slots: of a ring, for blocks of this program. Errors:
// UNSUPPORTED, if rings of so many slots, and so many rings, are not enough for the plan to complete.
ncast_status schedule(const plan::Plan& plan, const std::vector<MessageEnds>& ends, uint32_t max_slots,
                      Program* program);

}  // namespace narrowcast::executor::cuda::generated
