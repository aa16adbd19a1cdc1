// The operations of a communicator, from the rows of include/narrowcast/operations.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "narrowcast/operation.h"

namespace narrowcast::operation {

enum class Operation : uint8_t {
#define NCAST_OPERATION(number, SYMBOL, name, ...) name = number,
#include "narrowcast/operations.def"
};

enum class Kind : uint8_t { MOVE, REDUCE };
enum class NamedRank : uint8_t { ALL, PEER, ROOT };
enum class Buffer : uint8_t { NONE, PIECE, ROOT_PIECE, PIECES, ROOT_PIECES, LISTED };
enum class Overlap : uint8_t { SEPARATE, IN_PLACE };
enum class BusFactor : uint8_t { ONE, OTHERS, TWICE_OTHERS };
enum class Transport : uint8_t { BLOCKS, PACKETS };

// A row of operations.def. The comment there explains the columns.
struct Description {
  Operation operation;
  const char* name;           // "all_reduce"
  const char* function_name;  // "ncast_all_reduce"
  Kind kind;
  NamedRank rank;
  Buffer send, recv;
  Overlap overlap;
  BusFactor bus_factor;
  Transport transport;
  const char* nccl_functions;
};

inline constexpr Description descriptions[] = {
#define NCAST_OPERATION(number, SYMBOL, name, kind, rank, send, recv, overlap, bus_factor, transport, nccl) \
  {Operation::name,                                                                                         \
   #name,                                                                                                   \
   "ncast_" #name,                                                                                          \
   Kind::kind,                                                                                              \
   NamedRank::rank,                                                                                         \
   Buffer::send,                                                                                            \
   Buffer::recv,                                                                                            \
   Overlap::overlap,                                                                                        \
   BusFactor::bus_factor,                                                                                   \
   Transport::transport,                                                                                    \
   nccl},
#include "narrowcast/operations.def"
};
inline constexpr size_t count = std::size(descriptions);
static_assert(count == NCAST_OPERATIONS);
// The rows are in the order of their numbers.
static_assert([] {
  for (size_t i = 0; i < count; ++i)
    if (descriptions[i].operation != static_cast<Operation>(i)) return false;
  return true;
}());

constexpr const Description& describe(Operation operation) { return descriptions[static_cast<size_t>(operation)]; }
constexpr const char* name_of(Operation operation) { return describe(operation).name; }
constexpr const char* function_name(Operation operation) { return describe(operation).function_name; }
constexpr bool is_point_to_point(Operation operation) { return describe(operation).rank == NamedRank::PEER; }
constexpr bool has_root(Operation operation) { return describe(operation).rank == NamedRank::ROOT; }
constexpr bool reduces(Operation operation) { return describe(operation).kind == Kind::REDUCE; }
// Whether short calls can run by packets.
constexpr bool can_use_packets(Operation operation) { return describe(operation).transport == Transport::PACKETS; }

constexpr std::optional<Operation> find(std::string_view name) {
  for (const Description& row : descriptions)
    if (name == row.name) return row.operation;
  return std::nullopt;
}
constexpr std::optional<Operation> find(ncast_operation number) {
  const int index = number;
  if (index < 0 || index >= NCAST_OPERATIONS) return std::nullopt;
  return static_cast<Operation>(index);
}

// The reductions, by number.
inline constexpr const char* redop_names[] = {"sum", "prod", "max", "min", "avg"};

// The size of a buffer on this rank in pieces of `count` values. 0 if the call has no such buffer, or lists its ranges.
constexpr uint64_t pieces(Buffer buffer, uint64_t ranks, bool is_root) {
  switch (buffer) {
    case Buffer::PIECE: return 1;
    case Buffer::ROOT_PIECE: return is_root ? 1 : 0;
    case Buffer::PIECES: return ranks;
    case Buffer::ROOT_PIECES: return is_root ? ranks : 0;
    default: return 0;
  }
}

}  // namespace narrowcast::operation
