// The words through which the CTAs that encode a short frame communicate: 16 bytes each, a nonce and a number. A word
// has been published if it contains the nonce of the launch, so the workspace need not be cleared.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "codec/frame/cuda/nonce.h"
#include "device/ptx/system_memory.cuh"
#include "device/warp.cuh"

namespace narrowcast::codec::cuda {

// The positions of the words in the workspace.
struct PublishedLayout {
  uint32_t ctas, tiles;
  __host__ __device__ uint32_t participants() const { return 0; }
  __host__ __device__ uint32_t started(uint32_t cta) const { return 1 + cta; }
  __host__ __device__ uint32_t units(uint32_t tile) const { return 1 + ctas + tile; }
  __host__ __device__ size_t bytes() const { return (size_t{1} + ctas + tiles) * sizeof(uint4); }
};

// All functions are called by a whole warp.
class PublishedWords {
 public:
  __device__ PublishedWords(void* workspace, const Nonce& nonce, PublishedLayout layout, int lane)
      : words_(static_cast<uint4*>(workspace)), nonce_(nonce), layout_(layout), lane_(lane) {}

  __device__ void publish_units(uint32_t tile, uint32_t units) const { publish(layout_.units(tile), units); }
  // Waits until the units of the tiles [first, end) are published, and returns their sum.
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

  // The number of CTAs that take part: the first ones, up to the first that CTA 0 has not seen start when it stops
  // looking. All of them are running, so they can wait for each other even if the remaining CTAs have no SM yet.
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
  // The number of words that are read at once. Enough for all CTAs of an H200.
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
  // Loads consecutive words from `first`. Positions beyond `last` get the word at `last`.
  __device__ void load(uint32_t first, uint32_t last, uint4 (&words)[words_per_lane]) const {
#pragma unroll
    for (uint32_t i = 0; i < words_per_lane; ++i)
      words[i] = device::load_16_bytes_relaxed(words_ + min(first + place(i), last));
  }
  // The index of the first loaded word that has not been published; at_once if all have.
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
