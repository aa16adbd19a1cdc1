// The gather kernels of the coders `raw`, `plain` and `invariant`.
#include "store/cuda/bits_row.cuh"
#include "store/cuda/gather_kernels.cuh"
#include "store/cuda/raw_row.cuh"

namespace narrowcast::store::cuda {
namespace {

template <bool has_stages>
GatherKernel invariant_kernel_of(uint32_t chunk_bytes) {
  switch (chunk_bytes) {
    case 1: return RowDecoders<InvariantRow<uint8_t, has_stages>>::kernel(1);
    case 2: return RowDecoders<InvariantRow<uint16_t, has_stages>>::kernel(2);
    case 4: return RowDecoders<InvariantRow<uint32_t, has_stages>>::kernel(4);
    default: return RowDecoders<InvariantRow<uint64_t, has_stages>>::kernel(8);
  }
}

}  // namespace

GatherKernel raw_kernel() { return RowDecoders<RawRow<>, void, RawRow<LaneRows>>::kernel(0); }

GatherKernel plain_kernel(uint32_t elem_bytes) {
  switch (elem_bytes) {
    case 1: return RowDecoders<PlainRow<uint8_t>>::kernel(1);
    case 2: return RowDecoders<PlainRow<uint16_t>>::kernel(2);
    case 4: return RowDecoders<PlainRow<uint32_t>>::kernel(4);
    default: return RowDecoders<PlainRow<uint64_t>>::kernel(8);
  }
}

GatherKernel invariant_kernel(uint32_t chunk_bytes, bool has_stages) {
  return has_stages ? invariant_kernel_of<true>(chunk_bytes) : invariant_kernel_of<false>(chunk_bytes);
}

}  // namespace narrowcast::store::cuda
