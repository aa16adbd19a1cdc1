// The operations that may be taken, by the names that settings and statistics use.
#pragma once

#include <optional>
#include <string_view>

#include "narrowcast/explain.h"

namespace narrowcast::nccl {

using Operation = ncast_operation;
inline constexpr int operation_count = NCAST_OPERATIONS;

inline constexpr const char* operation_names[operation_count] = {
    "send",       "recv",       "broadcast",    "reduce",         "gather",    "scatter",
    "all_gather", "all_to_all", "all_to_all_v", "reduce_scatter", "all_reduce"};

inline const char* name_of(Operation operation) { return operation_names[operation]; }

inline std::optional<Operation> operation_named(std::string_view name) {
  for (int i = 0; i < operation_count; ++i)
    if (name == operation_names[i]) return static_cast<Operation>(i);
  return std::nullopt;
}

inline bool is_point_to_point(Operation operation) { return operation == NCAST_OP_SEND || operation == NCAST_OP_RECV; }

inline bool reduces(Operation operation) {
  return operation == NCAST_OP_REDUCE || operation == NCAST_OP_REDUCE_SCATTER || operation == NCAST_OP_ALL_REDUCE;
}

}  // namespace narrowcast::nccl
