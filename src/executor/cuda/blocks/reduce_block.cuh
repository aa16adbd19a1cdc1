// Reduces a block over the ranks in the registers of a warp. Lane i holds every 32nd vector of 16 bytes, from vector i.
#pragma once

#include "device/warp.cuh"
#include "executor/cuda/average.cuh"
#include "executor/cuda/word_values.cuh"

namespace narrowcast::executor::cuda {

template <ncast_dtype Dtype, uint32_t block_bytes>
class BlockSums {
  using Accumulator = typename Number<Dtype>::Accumulator;
  static constexpr int vectors = block_bytes / (32 * sizeof(ulonglong2));
  static constexpr int words = 2 * vectors;
  static constexpr int values = word_values<Dtype>;

 public:
  // block: 16-byte aligned shared memory. Results beyond the end of the values are not used.
  __device__ void set(const char* block, int lane) {
    for_each_word(block, lane, [&](uint64_t word, Accumulator(&sums)[values]) { widen<Dtype>(word, sums); });
  }
  __device__ void reduce(ncast_redop op, const char* block, int lane) {
    switch (op) {
      case NCAST_PROD: return reduce_with<NCAST_PROD>(block, lane);
      case NCAST_MIN: return reduce_with<NCAST_MIN>(block, lane);
      case NCAST_MAX: return reduce_with<NCAST_MAX>(block, lane);
      default: return reduce_with<NCAST_SUM>(block, lane);
    }
  }
  // Writes the results to shared memory.
  __device__ void finish(ncast_redop op, int ranks, char* block, int lane) const {
    const Average<Accumulator> average(op, ranks);
    // Two loops, because the code of a division is long.
    if (average.divides()) {
      write([&](Accumulator sum) { return average.divided(sum); }, block, lane);
    } else {
      write([&](Accumulator sum) { return average.multiplied(sum); }, block, lane);
    }
  }

  // Adds the blocks of two ranks and writes the result to b, as set(a), reduce(NCAST_SUM, b) and finish(op, 2, b) do,
  // with few registers.
  __device__ static void add(ncast_redop op, const char* a, char* b, int lane) {
    const Average<Accumulator> average(op, 2);
    const auto sum = [&](uint64_t one, uint64_t other) {
      Accumulator terms[values], results[values];
      widen<Dtype>(one, terms);
      widen<Dtype>(other, results);
#pragma unroll
      for (int i = 0; i < values; ++i)
        results[i] = average.multiplied(codec::cuda::reduced(NCAST_SUM, terms[i], results[i]));
      return narrow<Dtype>(results);
    };
#pragma unroll 4
    for (int v = 0; v < vectors; ++v) {
      const ulonglong2 own = reinterpret_cast<const ulonglong2*>(a)[v * 32 + lane];
      ulonglong2& result = reinterpret_cast<ulonglong2*>(b)[v * 32 + lane];
      result = {sum(own.x, result.x), sum(own.y, result.y)};
    }
  }

 private:
  template <typename Function>
  __device__ __forceinline__ void for_each_word(const char* block, int lane, Function function) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const ulonglong2 vector = reinterpret_cast<const ulonglong2*>(block)[v * 32 + lane];
      function(vector.x, sums_[2 * v]);
      function(vector.y, sums_[2 * v + 1]);
    }
  }
  template <ncast_redop Op>
  __device__ __forceinline__ void reduce_with(const char* block, int lane) {
    for_each_word(block, lane, [](uint64_t word, Accumulator(&sums)[values]) {
      Accumulator terms[values];
      widen<Dtype>(word, terms);
#pragma unroll
      for (int i = 0; i < values; ++i) sums[i] = codec::cuda::reduced(Op, sums[i], terms[i]);
    });
  }
  template <typename Function>
  __device__ __forceinline__ void write(Function finished, char* block, int lane) const {
    const auto word_of = [&](const Accumulator(&sums)[values]) {
      Accumulator results[values];
#pragma unroll
      for (int i = 0; i < values; ++i) results[i] = finished(sums[i]);
      return narrow<Dtype>(results);
    };
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      reinterpret_cast<ulonglong2*>(block)[v * 32 + lane] = {word_of(sums_[2 * v]), word_of(sums_[2 * v + 1])};
  }

  Accumulator sums_[words][values];
};

}  // namespace narrowcast::executor::cuda
