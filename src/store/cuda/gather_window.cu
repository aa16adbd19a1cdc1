// The gather kernels of the coder `window`.
#include "store/cuda/gather_kernels.cuh"
#include "store/cuda/window_row.cuh"

namespace narrowcast::store::cuda {
namespace {

template <window::ValueType type, typename ForLanes = void, typename ForTwos = void, typename ForEights = void>
GatherKernel kernel(uint32_t staged_bytes) {
  return RowDecoders<WindowRow<type>, WindowRow<type, Team>, ForLanes, ForTwos, ForEights>::kernel(staged_bytes);
}

}  // namespace

GatherKernel window_kernel(ncast_dtype dtype, uint32_t low_bits) {
  switch (dtype) {
    case NCAST_BFLOAT16:
      return kernel<window::bfloat16, WindowRow<window::bfloat16, LaneRows>, WindowRow<window::bfloat16, TwoLanes>,
                    WindowRow<window::bfloat16, EightLanes>>(2);
    case NCAST_FLOAT16: return low_bits == 0 ? kernel<window::float16>(2) : kernel<trimmed_float16>(2);
    case NCAST_FLOAT32:
      return low_bits == 0 ? kernel<window::float32>(4) : low_bits == 8 ? kernel<float32_24>(4) : kernel<float32_16>(4);
    case NCAST_FLOAT64: return kernel<window::float64>(8);
    case NCAST_FLOAT8_E4M3: return kernel<window::float8_e4m3>(1);
    case NCAST_FLOAT8_E5M2: return kernel<window::float8_e5m2>(1);
    default: return {};
  }
}

}  // namespace narrowcast::store::cuda
