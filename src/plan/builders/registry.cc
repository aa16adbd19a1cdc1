// The table of builders, and the checks of their arguments.
#include <algorithm>
#include <bit>
#include <string>

#include "codec/codec.h"
#include "plan/builders/builders.h"
#include "plan/limits.h"
#include "plan/steps.h"
#include "status/error.h"

namespace narrowcast::plan::builders {
namespace {

constexpr uint32_t max_depth = 1 << 16;

template <Operation... operations>
bool one_of(Operation operation) {
  return ((operation == operations) || ...);
}

bool any_ranks(int /*ranks*/) { return true; }
bool power_of_two(int ranks) { return std::has_single_bit(static_cast<unsigned>(ranks)); }

constexpr bool in_rank_order = true, for_nodes = true;
constexpr Row table[] = {
    {"all_pairs", "every rank sends each value directly to the ranks that need it; reduces in rank order", has_plans,
     any_ranks, in_rank_order, !for_nodes, all_pairs},
    {"relay", "every other rank than the root sends on one piece, or combines it in rank order and sends the result",
     one_of<Operation::broadcast, Operation::reduce>, any_ranks, in_rank_order, !for_nodes, relay},
    {"ring", "every rank receives from the rank before it and sends to the next one",
     one_of<Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce, Operation::broadcast,
            Operation::reduce>,
     any_ranks, !in_rank_order, !for_nodes, ring},
    {"halving_doubling", "exchanges with ranks at distances that are powers of two",
     one_of<Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce>, power_of_two, !in_rank_order,
     !for_nodes, halving_doubling},
    {"tree", "a binomial tree whose root is the operation's, or rank 0",
     one_of<Operation::broadcast, Operation::reduce, Operation::gather, Operation::scatter, Operation::all_reduce>,
     any_ranks, !in_rank_order, !for_nodes, tree},
    {"two_level", "values cross once between nodes, and are distributed, collected or combined within the nodes",
     has_plans, any_ranks, !in_rank_order, for_nodes, two_level},
    {"one_shot", "every rank stores packets in the memory of all ranks that need them; reduces in rank order",
     one_of<Operation::all_gather, Operation::all_to_all, Operation::reduce_scatter, Operation::all_reduce>, any_ranks,
     in_rank_order, !for_nodes, one_shot},
    {"two_shot", "as one_shot, but every rank reduces one part and sends the result", one_of<Operation::all_reduce>,
     any_ranks, in_rank_order, !for_nodes, two_shot},
};

ncast_status check(const char* name, const Request& request) {
  if (request.ranks < 1 || static_cast<uint32_t>(request.ranks) > max_ranks) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d, not 1 to %u", name, request.ranks, max_ranks);
  }
  if (operation::has_root(request.operation) && (request.root < 0 || request.root >= request.ranks)) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: root is %d, but the plan has ranks 0 to %d", name, request.root,
                request.ranks - 1);
  }
  if (request.depth < 1 || request.depth > max_depth) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: depth is %u, not 1 to %u", name, request.depth, max_depth);
  }
  return codec::check(name, request.codec);
}

}  // namespace

std::span<const Row> rows() { return table; }

bool suits_ranks(std::string_view name, int ranks) {
  const Row* const found = std::ranges::find_if(table, [&](const Row& row) { return row.name == name; });
  return found != std::end(table) && found->suits_ranks(ranks);
}

ncast_status build(std::string_view name, const Request& request, Plan* plan) {
  std::string names;
  for (const Row& row : table) {
    if (row.name != name) {
      names += (names.empty() ? "" : ", ") + std::string(row.name);
      continue;
    }
    if (ncast_status status = check(row.name, request)) return status;
    if (!row.suits(request.operation)) {
      return fail(NCAST_INVALID_ARGUMENT, "%s has no plan for %s", row.name, operation::name_of(request.operation));
    }
    if (!row.suits_ranks(request.ranks)) {
      return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d, which is not a power of two", row.name, request.ranks);
    }
    return row.build(request, plan);
  }
  return fail(NCAST_INVALID_ARGUMENT, "unknown algorithm '%.*s'; the algorithms are %s", static_cast<int>(name.size()),
              name.data(), names.c_str());
}

}  // namespace narrowcast::plan::builders
