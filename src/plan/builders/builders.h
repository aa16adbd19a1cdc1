// Builders: functions that make the plans of known algorithms, for any operation and number of ranks that the algorithm
// suits. The backends' built-in calls are plans of these builders.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::plan::builders {

struct Request {
  Operation operation = Operation::all_reduce;
  int ranks = 1;
  int root = 0;                         // of operations that have one
  ncast_codec codec = NCAST_CODEC_RAW;  // of the messages; not AUTO
  uint32_t depth = 4;                   // of the rings
  int ranks_per_node = 1;               // of two_level without `hosts`; it must divide `ranks`
  // Of two_level: the host of each rank, numbered from 0 in the order of their first ranks. Empty: ranks_per_node
  // consecutive ranks have one.
  std::vector<int> hosts = {};
  // Of two_level with an exact codec: that of messages that do not cross between hosts; nullopt: the same codec.
  std::optional<ncast_codec> codec_within = std::nullopt;
  bool partial_sums = false;  // of two_level: sums of a host are not rounded before they are combined
  // Of the results of an all_reduce by all_pairs or two_level; nullopt: as the other messages.
  std::optional<ncast_codec> result_codec = std::nullopt;
};

// One algorithm.
struct Row {
  const char* name;  // "ring"
  const char* text;  // what it does, for listings
  bool (*suits)(Operation operation);
  bool (*suits_ranks)(int ranks);
  bool is_in_rank_order;  // reductions combine the values of all ranks in one step, in rank order
  bool is_for_nodes;      // distinguishes ranks of the same node from others
  // The request is valid and its operation suits. Error: INVALID_ARGUMENT if the algorithm does not work for the number
  // of ranks; the message begins with the name of the algorithm.
  ncast_status (*build)(const Request& request, Plan* plan);
};

std::span<const Row> rows();
// Whether the algorithm `name` exists and works for this number of ranks.
bool suits_ranks(std::string_view name, int ranks);

// Builds the plan of the algorithm `name`. Errors: INVALID_ARGUMENT, for an unknown name, an operation that does not
// suit, or a number out of range.
ncast_status build(std::string_view name, const Request& request, Plan* plan);

// The algorithms. The request has passed the checks of build().
ncast_status all_pairs(const Request& request, Plan* plan);
ncast_status relay(const Request& request, Plan* plan);
ncast_status ring(const Request& request, Plan* plan);
ncast_status halving_doubling(const Request& request, Plan* plan);
ncast_status tree(const Request& request, Plan* plan);
ncast_status two_level(const Request& request, Plan* plan);
ncast_status one_shot(const Request& request, Plan* plan);
ncast_status two_shot(const Request& request, Plan* plan);

}  // namespace narrowcast::plan::builders
