// The functions of gather kernels, for gather_*.cu.
#pragma once

#include <type_traits>

#include "gather.cuh"
#include "kernels.h"

namespace narrowcast::store::cuda {

template <typename Row, bool may_have_cache>
__global__ void __launch_bounds__((Row::has_header ? max_coded_warps : max_raw_warps) * 32, 1)
    gather_kernel(const __grid_constant__ GatherArguments arguments) {
  extern __shared__ char shared_memory[];
  gather<Row, may_have_cache>(arguments, shared_memory);
}

// The decoders of rows for warps, teams and lanes; void: none.
template <typename ForWarps, typename ForTeams = void, typename ForLanes = void>
struct RowDecoders {
  static GatherKernel kernel(uint32_t staged_bytes) { return {staged_bytes, functions<false>(), functions<true>()}; }

 private:
  template <bool may_have_cache>
  static GatherKernel::Functions functions() {
    return {function<ForWarps, may_have_cache>(), function<ForTeams, may_have_cache>(),
            function<ForLanes, may_have_cache>()};
  }
  template <typename Row, bool may_have_cache>
  static const void* function() {
    if constexpr (std::is_void_v<Row>)
      return nullptr;
    else
      return reinterpret_cast<const void*>(&gather_kernel<Row, may_have_cache>);
  }
};

}  // namespace narrowcast::store::cuda
