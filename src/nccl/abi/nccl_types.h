// What the drop-in knows of nccl.h: the names, numbers and layouts that NCCL keeps stable.
#pragma once

#include <cstddef>

namespace narrowcast::nccl {

using Comm = struct ncclComm*;
using CudaStream = void*;

// ncclResult_t. Newer NCCL may return others.
enum Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7
};

// ncclUniqueId, which is passed by value.
struct UniqueId {
  char bytes[128];
};

// ncclConfig_t, as far as the drop-in looks, which reads what `size` says is there: the caller's pointer is passed on.
struct Config {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share, traffic_class;
  const char* comm_name;
};

constexpr unsigned int config_magic = 0xcafebeef;
constexpr int first_user_reduction = 5;
constexpr int value_types = 12;

}  // namespace narrowcast::nccl
