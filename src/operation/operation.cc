// The functions of narrowcast/operation.h.
#include "operation/operation.h"

#include "status/error.h"
#include "status/sized_struct.h"

namespace narrowcast::operation {
namespace {

constexpr ncast_operation_buffer public_buffer(Buffer buffer) {
  switch (buffer) {
    case Buffer::PIECE: return NCAST_BUFFER_PIECE;
    case Buffer::ROOT_PIECE: return NCAST_BUFFER_ROOT_PIECE;
    case Buffer::PIECES: return NCAST_BUFFER_PIECES;
    case Buffer::ROOT_PIECES: return NCAST_BUFFER_ROOT_PIECES;
    case Buffer::LISTED: return NCAST_BUFFER_LISTED;
    default: return NCAST_BUFFER_NONE;
  }
}

ncast_operation_info info_of(ncast_operation number, const Description& row) {
  return {.struct_bytes = sizeof(ncast_operation_info),
          .operation = number,
          .name = row.name,
          .function = row.function_name,
          .nccl_functions = row.nccl_functions,
          .reduces = row.kind == Kind::REDUCE,
          .has_root = row.rank == NamedRank::ROOT,
          .has_peer = row.rank == NamedRank::PEER,
          .in_place = row.overlap == Overlap::IN_PLACE,
          .packets = row.transport == Transport::PACKETS,
          .send = public_buffer(row.send),
          .recv = public_buffer(row.recv)};
}

}  // namespace
}  // namespace narrowcast::operation

using namespace narrowcast::operation;

extern "C" {

int ncast_operation_count(void) { return NCAST_OPERATIONS; }

ncast_status ncast_operation_describe(ncast_operation number, ncast_operation_info* info) {
  constexpr const char* function = "ncast_operation_describe";
  const auto operation = find(number);
  if (!operation)
    return narrowcast::fail(NCAST_INVALID_ARGUMENT, "%s: operation is %d, which is not an operation", function,
                            static_cast<int>(number));
  return narrowcast::fill_struct(function, "info", info_of(number, describe(*operation)), info);
}

double ncast_operation_bus_factor(ncast_operation number, int ranks) {
  const auto operation = find(number);
  if (!operation || ranks < 1) return 0;
  const double others = (ranks - 1.0) / ranks;
  switch (describe(*operation).bus_factor) {
    case BusFactor::ONE: return 1;
    case BusFactor::OTHERS: return others;
    case BusFactor::TWICE_OTHERS: return 2 * others;
  }
  return 0;
}

}  // extern "C"
