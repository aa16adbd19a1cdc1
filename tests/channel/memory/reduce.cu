// Tests reduction of received messages through the public interface.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <barrier>
#include <iterator>

#include "channel/channel_rank.h"
#include "narrowcast/narrowcast.h"

namespace narrowcast::testing {
namespace {

template <typename Value, typename Accumulator>
struct Sums {
  using Codec = Window<NCAST_BFLOAT16>;
  static constexpr uint32_t max_count = Codec::values_bytes / sizeof(Value);

  __device__ static float value_of(int rank, uint32_t ring, uint32_t message, uint32_t i) {
    return static_cast<float>((rank * 7 + ring * 3 + message * 5 + i) % 64);  // their sums are exact in every type
  }

  // Reduces raw messages in shared memory, 16-byte aligned and not, and coded messages in global memory.
  __device__ static void run(const ncast_channels& channels, Accumulator* global, uint32_t* wrong) {
    extern __shared__ char shared_memory[];
    const Place place(channels);
    struct Mine {
      BlockMemory<Codec> memory;
      Value values[max_count];
      alignas(16) Accumulator sums[max_count + 1];
    };
    Mine& mine = reinterpret_cast<Mine*>(shared_memory)[place.warp];
    Sender out(channels, place.next, place.ring);
    Receiver in(channels, place.previous, place.ring);
    const auto add = [](Accumulator sum, Value value) {
      return static_cast<Accumulator>(sum + static_cast<Accumulator>(value));
    };
    Accumulator* const coded_sums = global + place.ring * size_t{max_count};
    const uint32_t counts[] = {max_count, 1, max_count - 1, 7, 0, max_count / 2 + 3};
    uint32_t bad = 0;
    for (uint32_t message = 0; message < std::size(counts); ++message) {
      const uint32_t count = counts[message];
      Accumulator* const sums = mine.sums + message % 2;
      for (uint32_t i = place.thread; i < count; i += 32) {
        mine.values[i] = static_cast<Value>(value_of(channels.rank, place.ring, message, i));
        sums[i] = coded_sums[i] = static_cast<Accumulator>(static_cast<float>(i % 100));
      }
      __syncwarp();
      const auto bytes = static_cast<uint32_t>(count * sizeof(Value));
      if (!out.put(mine.values, bytes) || !out.put(mine.values, bytes) || !out.signal()) bad += 1000000;
      for (int time = 0; time < 2; ++time)
        if (!in.get_reduced<Value>(sums, count, add)) bad += 1000000;
      if (count != 0 && (out.put_encoded(mine.values, bytes, mine.memory) == 0 || !out.signal() ||
                         !in.get_decoded_reduced<Value>(coded_sums, count, mine.memory, add)))
        bad += 1000000;
      for (uint32_t i = place.thread; i < count; i += 32) {
        const float more = value_of(place.previous, place.ring, message, i), before = static_cast<float>(i % 100);
        bad += static_cast<float>(sums[i]) != before + 2 * more;
        bad += static_cast<float>(coded_sums[i]) != before + more;
      }
      __syncwarp();
    }
    if (bad != 0) count_up(wrong, bad);
  }
  static constexpr size_t shared_bytes() {
    return warps *
           (sizeof(BlockMemory<Codec>) + 2 * 128 + max_count * sizeof(Value) + (max_count + 1) * sizeof(Accumulator));
  }
};

template <typename Value, typename Accumulator>
__global__ void reduce_messages(const __grid_constant__ ncast_channels channels, Accumulator* global, uint32_t* wrong) {
  Sums<Value, Accumulator>::run(channels, global, wrong);
}

template <typename Value, typename Accumulator>
void check_sums() {
  using Own = Sums<Value, Accumulator>;
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
      Rank mine(rank, ranks, id, everybody);
      Accumulator* global = nullptr;
      EXPECT_CUDA(cudaMalloc(&global, rings * Own::max_count * sizeof(Accumulator)));
      const auto kernel = reduce_messages<Value, Accumulator>;
      EXPECT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(Own::shared_bytes())));
      mine.begin();
      kernel<<<ctas, warps * 32, Own::shared_bytes(), mine.stream>>>(mine.channels, global, mine.counts);
      mine.end();
      EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
      EXPECT(mine.count() == 0);
      EXPECT_CUDA(cudaFree(global));
    });
  }
}

TEST_CASE("messages are reduced into accumulators of another type, in shared and global memory") {
  check_sums<float, float>();
  check_sums<__nv_bfloat16, float>();
  check_sums<__nv_bfloat16, double>();
  check_sums<int, int>();
  check_sums<float, __nv_bfloat16>();  // narrower than the values: not vectorized
}

}  // namespace
}  // namespace narrowcast::testing
