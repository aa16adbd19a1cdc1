// The functions of gather kernels, for gather_*.cu.
#pragma once

#include <type_traits>

#include "gather.cuh"
#include "kernels.h"

namespace narrowcast::store::cuda {

template <typename Row, bool has_cache>
__global__ void __launch_bounds__((Row::has_header ? max_coded_warps : max_raw_warps) * 32, 1)
    gather_kernel(const __grid_constant__ GatherArguments arguments) {
  extern __shared__ char shared_memory[];
  gather<Row, has_cache>(arguments, shared_memory);
}

// The decoders of rows for warps, teams, lanes, and tiles of two and of eight lanes; void: none.
template <typename ForWarps, typename ForTeams = void, typename ForLanes = void, typename ForTwos = void,
          typename ForEights = void>
struct RowDecoders {
  static GatherKernel kernel(uint32_t staged_bytes) { return {staged_bytes, functions<false>(), functions<true>()}; }

 private:
  template <bool has_cache>
  static GatherKernel::Functions functions() {
    return {function<ForWarps, has_cache>(), function<ForTeams, has_cache>(), function<ForLanes, has_cache>(),
            function<ForTwos, has_cache>(), function<ForEights, has_cache>()};
  }
  template <typename Row, bool has_cache>
  static const void* function() {
    if constexpr (std::is_void_v<Row>)
      return nullptr;
    else
      return reinterpret_cast<const void*>(&gather_kernel<Row, has_cache>);
  }
};

}  // namespace narrowcast::store::cuda
