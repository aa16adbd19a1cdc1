#include "nccl/worth.h"

namespace narrowcast::nccl {

// By bench/results/collectives_2xh200.json. What has not been measured is NCCL's.
const char* why_not_worth_taking(const CallShape& shape, ncast_codec) {
  constexpr uint64_t kib = 1024, mib = 1024 * kib;
  if (shape.ranks != 2) return "not measured against NCCL with so many ranks";
  switch (shape.operation) {
    case NCAST_OP_ALL_GATHER:
    case NCAST_OP_ALL_TO_ALL:
    case NCAST_OP_SEND:
    case NCAST_OP_RECV: return nullptr;
    case NCAST_OP_ALL_REDUCE: return shape.bytes <= 64 * mib ? nullptr : "NCCL is faster at this size";
    case NCAST_OP_REDUCE_SCATTER:
      return shape.bytes <= 128 * kib || shape.bytes >= 2 * mib ? nullptr : "NCCL is faster at this size";
    default: return "not measured against NCCL";
  }
}

}  // namespace narrowcast::nccl
