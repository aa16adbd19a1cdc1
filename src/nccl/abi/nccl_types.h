// The parts of nccl.h that the drop-in uses: names, numbers and layouts that NCCL keeps stable.
#pragma once

#include <climits>
#include <cstddef>

namespace narrowcast::nccl {

using Comm = struct ncclComm*;
using CudaStream = void*;

// ncclResult_t. Newer releases of NCCL may return other values.
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

// The beginning of ncclConfig_t. Older callers pass less: only fields within `size` may be read.
struct Config {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share, traffic_class;
  const char* comm_name;
  int collnet_enable, cta_policy;
};

constexpr unsigned int config_magic = 0xcafebeef;
constexpr int config_undefined = INT_MIN;  // NCCL_CONFIG_UNDEF_INT
// Bits of Config::cta_policy.
constexpr int cta_policy_efficiency = 1;  // NCCL_CTA_POLICY_EFFICIENCY
constexpr int cta_policy_zero = 2;        // NCCL_CTA_POLICY_ZERO
constexpr int suspend_memory = 1;         // NCCL_SUSPEND_MEM
constexpr int first_user_reduction = 5;
constexpr int value_types = 12;

}  // namespace narrowcast::nccl
