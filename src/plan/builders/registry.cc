// The table of builders, and the checks of their arguments.
#include <string>

#include "codec/codec.h"
#include "plan/builders/builders.h"
#include "status/error.h"

namespace narrowcast::plan::builders {
namespace {

constexpr uint32_t max_depth = 1 << 16;

bool every(Operation operation) {
  return !operation::is_point_to_point(operation) && operation != Operation::all_to_all_v;
}

template <Operation... operations>
bool one_of(Operation operation) {
  return ((operation == operations) || ...);
}

constexpr Row table[] = {
    {"all_pairs", "every rank sends each value directly to the ranks that need it; reduces in rank order", every,
     all_pairs},
    {"relay", "the root sends every other rank one piece, which that rank sends on", one_of<Operation::broadcast>,
     relay},
    {"ring", "every rank receives from the rank before it and sends to the next one",
     one_of<Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce, Operation::broadcast,
            Operation::reduce>,
     ring},
    {"halving_doubling", "exchanges with ranks at distances that are powers of two",
     one_of<Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce>, halving_doubling},
    {"tree", "a binomial tree whose root is the operation's, or rank 0",
     one_of<Operation::broadcast, Operation::reduce, Operation::gather, Operation::scatter, Operation::all_reduce>,
     tree},
    {"two_level", "values cross once between nodes, and are distributed or combined within the nodes",
     one_of<Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce, Operation::broadcast,
            Operation::reduce>,
     two_level},
    {"one_shot", "every rank stores packets in the memory of all ranks that need them; reduces in rank order",
     one_of<Operation::all_gather, Operation::all_to_all, Operation::reduce_scatter, Operation::all_reduce>, one_shot},
    {"two_shot", "as one_shot, but every rank reduces one part and sends the result", one_of<Operation::all_reduce>,
     two_shot},
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
    return row.build(request, plan);
  }
  return fail(NCAST_INVALID_ARGUMENT, "unknown algorithm '%.*s'; the algorithms are %s", static_cast<int>(name.size()),
              name.data(), names.c_str());
}

}  // namespace narrowcast::plan::builders
