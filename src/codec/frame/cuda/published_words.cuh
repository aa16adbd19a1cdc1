// What the CTAs that encode a short frame publish to each other: words of 16 bytes, the nonce and a number. A word that
// holds the launch's nonce has been published, whatever was in the workspace before.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "codec/frame/cuda/nonce.h"
#include "device/ptx/system_memory.cuh"
#include "device/warp.cuh"

namespace narrowcast::codec::cuda {

// Where the words are in the workspace.
struct PublishedLayout {
  uint32_t ctas, tiles;
  __host__ __device__ uint32_t participants() const { return 0; }
  __host__ __device__ uint32_t started(uint32_t cta) const { return 1 + cta; }
  __host__ __device__ uint32_t units(uint32_t tile) const { return 1 + ctas + tile; }
  __host__ __device__ size_t bytes() const { return (size_t{1} + ctas + tiles) * sizeof(uint4); }
};

// The whole warp calls every function.
class PublishedWords {
 public:
  __device__ PublishedWords(void* workspace, const Nonce& nonce, PublishedLayout layout, int lane)
      : words_(static_cast<uint4*>(workspace)), nonce_(nonce), layout_(layout), lane_(lane) {}

  __device__ void publish_units(uint32_t tile, uint32_t units) const { publish(layout_.units(tile), units); }
  // The sum of the units of the tiles [first, end); waits until all are published.
  __device__ uint32_t units(uint32_t first, uint32_t end) const {
    uint32_t sum = 0;
    for (; first < end; first += at_once) {
      uint4 words[words_per_lane];
      do {
        load(layout_.units(first), layout_.units(end - 1), words);
      } while (first_missing(words) != at_once);
#pragma unroll
      for (uint32_t i = 0; i < words_per_lane; ++i) sum += first + place(i) < end ? words[i].w : 0;
    }
    return __reduce_add_sync(device::all_lanes, sum);
  }

  // How many CTAs take part: those that CTA 0 sees start, in order, before it stops looking. All of them are running,
  // so they may wait for each other even while other CTAs wait for an SM.
  __device__ uint32_t participants(uint32_t cta) const {
    publish(layout_.started(cta), 0);
    if (cta == 0) {
      const uint32_t count = count_started();
      publish(layout_.participants(), count);
      return count;
    }
    uint4 words[words_per_lane];
    do {
      load(layout_.participants(), layout_.participants(), words);
    } while (first_missing(words) != at_once);
    return words[0].w;
  }

 private:
  // Words that are read together: enough for the CTAs of an H200.
  static constexpr uint32_t words_per_lane = 5, at_once = 32 * words_per_lane;
  __device__ uint32_t place(uint32_t i) const { return i * 32 + lane_; }

  __device__ uint32_t count_started() const {
    constexpr long long max_cycles = 8000;
    const long long begun = clock64();
    uint32_t count = 1;
    bool looking = true;
    while (count < layout_.ctas && looking) {
      uint4 words[words_per_lane];
      load(layout_.started(count), layout_.started(layout_.ctas - 1), words);
      count = min(count + first_missing(words), layout_.ctas);
      looking = __all_sync(device::all_lanes, clock64() - begun < max_cycles);
    }
    return count;
  }

  __device__ void publish(uint32_t word, uint32_t number) const {
    if (lane_ == 0) device::store_16_bytes_relaxed(words_ + word, {nonce_.of[0], nonce_.of[1], nonce_.of[2], number});
  }
  // Consecutive words from `first`; beyond `last`, the last one.
  __device__ void load(uint32_t first, uint32_t last, uint4 (&words)[words_per_lane]) const {
#pragma unroll
    for (uint32_t i = 0; i < words_per_lane; ++i)
      words[i] = device::load_16_bytes_relaxed(words_ + min(first + place(i), last));
  }
  // The first of the loaded words that has not been published; at_once if all have.
  __device__ uint32_t first_missing(const uint4 (&words)[words_per_lane]) const {
    uint32_t first = at_once;
#pragma unroll
    for (uint32_t i = 0; i < words_per_lane; ++i) {
      const bool published = words[i].x == nonce_.of[0] && words[i].y == nonce_.of[1] && words[i].z == nonce_.of[2];
      if (!published) first = min(first, place(i));
    }
    return __reduce_min_sync(device::all_lanes, first);
  }

  uint4* words_;
  const Nonce& nonce_;
  PublishedLayout layout_;
  int lane_;
};

}  // namespace narrowcast::codec::cuda
