// The operations of the engine, with the names that settings and statistics use.
#pragma once

#include <optional>
#include <string_view>

#include "narrowcast/explain.h"

namespace narrowcast::nccl {

using Operation = ncast_operation;
inline constexpr int operation_count = NCAST_OPERATIONS;

inline constexpr const char* operation_names[operation_count] = {
#define NCAST_OPERATION(number, SYMBOL, name, ...) #name,
#include "narrowcast/operations.def"
};

inline const char* name_of(Operation operation) { return operation_names[operation]; }

inline std::optional<Operation> operation_named(std::string_view name) {
  for (int i = 0; i < operation_count; ++i)
    if (name == operation_names[i]) return static_cast<Operation>(i);
  return std::nullopt;
}

enum class NamedRank { ALL, PEER, ROOT };
inline constexpr NamedRank named_ranks[operation_count] = {
#define NCAST_OPERATION(number, SYMBOL, name, kind, rank, ...) NamedRank::rank,
#include "narrowcast/operations.def"
};
inline bool is_point_to_point(Operation operation) { return named_ranks[operation] == NamedRank::PEER; }
inline bool has_root(Operation operation) { return named_ranks[operation] == NamedRank::ROOT; }

enum class Kind { MOVE, REDUCE };
inline constexpr Kind kinds[operation_count] = {
#define NCAST_OPERATION(number, SYMBOL, name, kind, ...) Kind::kind,
#include "narrowcast/operations.def"
};
inline bool reduces(Operation operation) { return kinds[operation] == Kind::REDUCE; }

}  // namespace narrowcast::nccl
