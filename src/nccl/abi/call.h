// A call of NCCL that the engine may run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "nccl/abi/exports.h"
#include "nccl/abi/nccl_types.h"
#include "nccl/abi/operations.h"

namespace narrowcast::nccl {

// The factor of a pre-multiplied sum.
struct Factor {
  double value;
  const void* in_memory;  // of the GPU: read when the call runs; NULL: value
};

struct Call {
  Function function;
  Operation operation;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  int dtype = 0;  // ncclDataType_t: ncast_dtype has the same numbers
  int redop = 0;  // ncclRedOp_t: ncast_redop has the same numbers below first_user_reduction
  std::optional<Factor> factor = std::nullopt;  // redop is a pre-multiplied sum, which the engine can run
  int peer = 0;                                 // of send and recv; otherwise the root
  Comm comm = nullptr;
  CudaStream stream = nullptr;
  const void* config = nullptr;  // ncclCollConfig_t
};

// Whether both are transfers of the same number of values of one type. They get the same decision, whatever their peers
// and directions are, and groups often have many of them.
inline bool are_alike(const Call& one, const Call& other) {
  return is_point_to_point(one.operation) && is_point_to_point(other.operation) && one.count == other.count &&
         one.dtype == other.dtype && one.config == other.config;
}

// Bytes of one value; 0 for an unknown type.
constexpr size_t value_bytes(int dtype) {
  constexpr size_t bytes[value_types] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return dtype < 0 || dtype >= value_types ? 0 : bytes[dtype];
}

// Size of the largest piece that one rank sends another. For all_reduce this is the whole vector.
inline uint64_t piece_bytes(const Call& call) { return call.count * value_bytes(call.dtype); }

}  // namespace narrowcast::nccl
