// The kernels of frames and slots for one codec.
#pragma once

#include "codec/each_dtype.h"
#include "codec/frame/cuda/decode.cuh"
#include "codec/frame/cuda/decode_reduce.cuh"
#include "codec/frame/cuda/encode_frame.cuh"
#include "codec/frame/cuda/encode_slots.cuh"
#include "codec/frame/cuda/short_frame.cuh"
#include "codec/kernel_table.h"

namespace narrowcast::codec::cuda {

// Adds the kernels to the table, for every value type that the codec supports.
template <template <ncast_dtype> typename Codec>
bool add_frame_kernels(ncast_codec id) {
  for_each_dtype<Codec>([id]<typename C>() {
    const auto add = [id](KernelKind kind, auto* function, int max_warps, int max_warps_on_all_sms, size_t warp_bytes,
                          size_t cta_bytes) {
      add_kernel(kind, id, C::dtype,
                 {reinterpret_cast<const void*>(function), static_cast<uint32_t>(max_warps),
                  static_cast<uint32_t>(max_warps_on_all_sms), warp_bytes, cta_bytes});
    };
    constexpr size_t warp_bytes = sizeof(WarpMemory<C, 2>);
    add(KernelKind::encode_slots, encode_slots_kernel<C>, max_warps<C>, encoders_on_all_sms<C>, warp_bytes, 0);
    add(KernelKind::decode, decode_kernel<C>, max_warps<C>, decoders_on_all_sms<C>, warp_bytes, 0);
    add(KernelKind::decode_reduce, decode_reduce_kernel<C>, max_warps<C>, decoders_on_all_sms<C>, warp_bytes, 0);
    if constexpr (!C::is_fixed) {
      add(KernelKind::encode_frame, encode_frame_kernel<C>, max_coders<C>, max_coders<C>,
          sizeof(WarpMemory<C, buffer_count>), sizeof(FrameMemory));
      add(KernelKind::encode_short_frame, encode_short_frame_kernel<C>, max_short_frame_coders<C>,
          max_short_frame_coders<C>, sizeof(ShortFrameWarp<C>), sizeof(ShortFrameCta));
    }
  });
  return true;
}

}  // namespace narrowcast::codec::cuda
