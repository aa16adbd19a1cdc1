// Instantiates and registers the block kernels of a codec.
#pragma once

#include "codec/each_dtype.h"
#include "codec/kernel_table.h"
#include "executor/cuda/blocks/move.cuh"
#include "executor/cuda/blocks/reduce.cuh"

namespace narrowcast::executor::cuda {

// warps: the most of a CTA. Calls determine their number and the shared memory (select/block_split.h).
inline void add_block_kernel(codec::KernelKind kind, ncast_codec id, ncast_dtype dtype, void (*function)(BlockCall),
                             uint32_t warps) {
  codec::add_kernel(kind, id, dtype, {reinterpret_cast<const void*>(function), warps, warps, 0, 0});
}

// Adds the kernels that move values of `dtype`. Codec may be for a different type with the same block layout.
template <typename Codec>
void add_move_kernels(ncast_codec id, ncast_dtype dtype) {
  constexpr uint32_t warps = move_warps(most_shared_bytes, Codec::values_bytes).all();
  add_block_kernel(codec::KernelKind::move, id, dtype, move_blocks<Codec>, warps);
  add_block_kernel(codec::KernelKind::relay, id, dtype, relay_pieces<Codec>, warps);
}

// Types whose sums have a kernel of their own. Its reduction is a constant, which makes it up to 4% faster with encoded
// values, and plans that reduce as it does need not be compiled.
constexpr bool has_sum_kernel(ncast_dtype dtype) {
  return dtype == NCAST_FLOAT16 || dtype == NCAST_BFLOAT16 || dtype == NCAST_FLOAT32;
}

template <typename Codec>
void add_reduce_kernel(ncast_codec id) {
  const auto add = [id](codec::KernelKind kind, void (*function)(BlockCall)) {
    add_block_kernel(kind, id, Codec::dtype, function, most_reduce_warps<Codec>());
  };
  add(codec::KernelKind::reduce, reduce_pieces<Codec>);
  if constexpr (has_sum_kernel(Codec::dtype)) add(codec::KernelKind::reduce_sum, reduce_pieces<Codec, NCAST_SUM>);
}

// Adds all kernels for every value type that the codec's template accepts.
template <template <ncast_dtype> typename Codec>
bool add_block_kernels(ncast_codec id) {
  codec::for_each_dtype<Codec>([id]<typename C>() {
    add_move_kernels<C>(id, C::dtype);
    add_reduce_kernel<C>(id);
  });
  return true;
}

}  // namespace narrowcast::executor::cuda
