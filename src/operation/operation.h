// The operations of a communicator, and what sets them apart.
#pragma once

#include <cstdint>

#include "narrowcast/comm.h"

namespace narrowcast::collective {

enum class Operation : uint8_t {
  send = NCAST_OP_SEND,
  recv = NCAST_OP_RECV,
  broadcast = NCAST_OP_BROADCAST,
  reduce = NCAST_OP_REDUCE,
  gather = NCAST_OP_GATHER,
  scatter = NCAST_OP_SCATTER,
  all_gather = NCAST_OP_ALL_GATHER,
  all_to_all = NCAST_OP_ALL_TO_ALL,
  all_to_all_v = NCAST_OP_ALL_TO_ALL_V,
  reduce_scatter = NCAST_OP_REDUCE_SCATTER,
  all_reduce = NCAST_OP_ALL_REDUCE
};

// "ncast_all_reduce"
const char* function_name(Operation operation);

inline bool is_point_to_point(Operation operation) {
  return operation == Operation::send || operation == Operation::recv;
}
inline bool reduces(Operation operation) {
  return operation == Operation::reduce || operation == Operation::reduce_scatter || operation == Operation::all_reduce;
}
inline bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce || operation == Operation::gather ||
         operation == Operation::scatter;
}

}  // namespace narrowcast::collective
