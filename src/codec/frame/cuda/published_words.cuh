// What the CTAs that encode a short frame tell each other, 16 bytes a word: the nonce, which says that it was told, and a number.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "codec/frame/cuda/nonce.h"
#include "device/ptx/system_memory.cuh"
#include "device/warp.cuh"

namespace narrowcast::codec::cuda {

// Where the words stand in the workspace.
struct ToldLayout {
  uint32_t ctas, tiles;
  __host__ __device__ uint32_t participants() const { return 0; }
  __host__ __device__ uint32_t started(uint32_t cta) const { return 1 + cta; }
  __host__ __device__ uint32_t units(uint32_t tile) const { return 1 + ctas + tile; }
  __host__ __device__ size_t bytes() const { return (size_t{1} + ctas + tiles) * sizeof(uint4); }
};

// The whole warp calls every function.
class ToldWords {
 public:
  __device__ ToldWords(void* workspace, const Nonce& nonce, ToldLayout layout, int lane)
      : words_(static_cast<uint4*>(workspace)), nonce_(nonce), layout_(layout), lane_(lane) {}

  __device__ void tell_units(uint32_t tile, uint32_t units) const { tell(layout_.units(tile), units); }
  // The units of the tiles [first, end), once all are told.
  __device__ uint32_t units(uint32_t first, uint32_t end) const {
    uint32_t sum = 0;
    for (; first < end; first += at_once) {
      uint4 words[of_lane];
      do {
        load(layout_.units(first), layout_.units(end - 1), words);
      } while (first_missing(words) != at_once);
#pragma unroll
      for (uint32_t i = 0; i < of_lane; ++i) sum += first + place(i) < end ? words[i].w : 0;
    }
    return __reduce_add_sync(device::all_lanes, sum);
  }

  // How many CTAs take part, all of which run: those that CTA 0 sees start, one after the other, before it stops looking. So
  // they may wait for each other, though others wait for an SM that something else has.
  __device__ uint32_t participants(uint32_t cta) const {
    tell(layout_.started(cta), 0);
    if (cta == 0) {
      const uint32_t count = count_started();
      tell(layout_.participants(), count);
      return count;
    }
    uint4 words[of_lane];
    do {
      load(layout_.participants(), layout_.participants(), words);
    } while (first_missing(words) != at_once);
    return words[0].w;
  }

 private:
  // Words that are looked at together: of as many CTAs as an H200 has SMs, and a few.
  static constexpr uint32_t of_lane = 5, at_once = 32 * of_lane;
  __device__ uint32_t place(uint32_t i) const { return i * 32 + lane_; }

  __device__ uint32_t count_started() const {
    constexpr long long most_cycles = 8000;
    const long long begun = clock64();
    uint32_t count = 1;
    bool looks = true;
    while (count < layout_.ctas && looks) {
      uint4 words[of_lane];
      load(layout_.started(count), layout_.started(layout_.ctas - 1), words);
      count = min(count + first_missing(words), layout_.ctas);
      looks = __all_sync(device::all_lanes, clock64() - begun < most_cycles);
    }
    return count;
  }

  __device__ void tell(uint32_t word, uint32_t number) const {
    if (lane_ == 0) device::store_16_bytes_relaxed(words_ + word, {nonce_.of[0], nonce_.of[1], nonce_.of[2], number});
  }
  // From `first` on, and the last one again and again.
  __device__ void load(uint32_t first, uint32_t last, uint4 (&words)[of_lane]) const {
#pragma unroll
    for (uint32_t i = 0; i < of_lane; ++i)
      words[i] = device::load_16_bytes_relaxed(words_ + min(first + place(i), last));
  }
  // Of those that were loaded, the first that has not been told; at_once: all have.
  __device__ uint32_t first_missing(const uint4 (&words)[of_lane]) const {
    uint32_t first = at_once;
#pragma unroll
    for (uint32_t i = 0; i < of_lane; ++i) {
      const bool told = words[i].x == nonce_.of[0] && words[i].y == nonce_.of[1] && words[i].z == nonce_.of[2];
      if (!told) first = min(first, place(i));
    }
    return __reduce_min_sync(device::all_lanes, first);
  }

  uint4* words_;
  const Nonce& nonce_;
  ToldLayout layout_;
  int lane_;
};

}  // namespace narrowcast::codec::cuda
