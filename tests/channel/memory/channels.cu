// Tests the channels for users' kernels through the public interface.
#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <vector>

#include "channel/channel_rank.h"
#include "codec/patterns.h"
#include "narrowcast/narrowcast.h"

namespace narrowcast::testing {
namespace {

__device__ uint32_t length_of(uint32_t message, uint32_t slot_bytes) {
  return message % 5 == 0 ? slot_bytes : message % 7 == 0 ? 0 : message * 977 % slot_bytes;
}

// Counts wrong bytes and lengths. A function that reports a stop counts as a million.
__global__ void pass_messages(const __grid_constant__ ncast_channels channels, uint32_t first, uint32_t messages,
                              uint32_t* wrong) {
  __shared__ uint8_t buffers[warps][8192];
  const Place place(channels);
  uint8_t* const buffer = buffers[place.warp];
  Sender out(channels, place.next, place.ring);
  Receiver in(channels, place.previous, place.ring);
  uint32_t bad = 0;
  for (uint32_t begin = first; begin < first + messages; begin += batch) {
    for (uint32_t message = begin; message < begin + batch; ++message) {
      const uint32_t bytes = length_of(message, channels.slot_bytes);
      for (uint32_t i = place.thread; i < bytes; i += 32) buffer[i] = byte_of(channels.rank, place.ring, message, i);
      if (!out.put(buffer, bytes)) bad += 1000000;
    }
    if (!out.signal()) bad += 1000000;
    for (uint32_t message = begin; message < begin + batch; ++message) {
      const uint32_t bytes = length_of(message, channels.slot_bytes);
      if (message % 2 == 0) {
        for (int polls = 0; polls < 100 && !in.poll(); ++polls) {
        }
        if (!in.wait()) bad += 1000000;
        if (in.bytes() != bytes) ++bad;
        for (uint32_t i = place.thread; i < bytes; i += 32)
          bad += static_cast<const uint8_t*>(in.data())[i] != byte_of(place.previous, place.ring, message, i);
        in.release();
      } else {
        if (!in.get(buffer, bytes)) bad += 1000000;
        for (uint32_t i = place.thread; i < bytes; i += 32)
          bad += buffer[i] != byte_of(place.previous, place.ring, message, i);
        __syncwarp();
      }
    }
  }
  if (!out.flush()) bad += 1000000;
  if (bad != 0) count_up(wrong, bad);
}

TEST_CASE("messages arrive complete and in order across kernel launches") {
  for (const int ranks : {1, 2, 3}) {
    for (const uint32_t slot_bytes : {4096u, 8192u}) {
      CAPTURE(ranks);
      CAPTURE(slot_bytes);
      run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
        Rank mine(rank, ranks, id, everybody, slot_bytes);
        mine.begin();
        for (uint32_t first = 0; first < (is_reduced_run ? 30 : 4 * 30); first += 30) {
          pass_messages<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, first, 30, mine.counts);
          mine.launched();
        }
        mine.end();
        EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
        EXPECT(mine.count() == 0);
      });
    }
  }
}

// Memory of a rank: `put` is written by the previous rank, `got` is read by the next rank.
constexpr uint32_t part_bytes = 3001;
struct Shared {
  uint8_t put[rings][part_bytes];
  uint8_t got[rings][part_bytes];
};

__global__ void pass_directly(const __grid_constant__ ncast_channels channels, Shared* own, Shared* of_next,
                              Shared* of_previous, uint32_t* wrong) {
  __shared__ uint8_t buffers[warps][part_bytes];
  const Place place(channels);
  uint8_t* const buffer = buffers[place.warp];
  Sender out(channels, place.next, place.ring);
  Receiver in(channels, place.previous, place.ring);
  uint32_t bad = 0;
  for (uint32_t round = 0; round < 20; ++round) {
    for (uint32_t i = place.thread; i < part_bytes; i += 32) {
      buffer[i] = byte_of(channels.rank, place.ring, round, i);
      own->got[place.ring][i] = byte_of(channels.rank, place.ring, round + 100, i);
    }
    out.put_direct(of_next->put[place.ring], buffer, part_bytes);
    if (!out.signal() || !in.wait()) bad += 1000000;
    for (uint32_t i = place.thread; i < part_bytes; i += 32)
      bad += own->put[place.ring][i] != byte_of(place.previous, place.ring, round, i);
    in.get_direct(buffer, of_previous->got[place.ring], part_bytes);
    for (uint32_t i = place.thread; i < part_bytes; i += 32)
      bad += buffer[i] != byte_of(place.previous, place.ring, round + 100, i);
    in.release();
    if (!out.flush()) bad += 1000000;  // the next rank has received the data
  }
  if (bad != 0) count_up(wrong, bad);
}

TEST_CASE("direct writes and reads are complete when the signal arrives") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
      Rank mine(rank, ranks, id, everybody);
      void *own = nullptr, *of_next = nullptr, *of_previous = nullptr;
      EXPECT_OK(ncast_mem_alloc(mine.comm, sizeof(Shared), &own));
      EXPECT_OK(ncast_mem_peer(mine.comm, own, (rank + 1) % ranks, &of_next));
      EXPECT_OK(ncast_mem_peer(mine.comm, own, (rank + ranks - 1) % ranks, &of_previous));
      std::vector<char> content(sizeof(Shared));
      EXPECT_CUDA(cudaMemcpy(content.data(), own, content.size(), cudaMemcpyDefault));
      EXPECT(std::ranges::count(content, 0) == static_cast<std::ptrdiff_t>(content.size()));
      mine.begin();
      pass_directly<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, static_cast<Shared*>(own),
                                                          static_cast<Shared*>(of_next),
                                                          static_cast<Shared*>(of_previous), mine.counts);
      mine.end();
      EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
      EXPECT(mine.count() == 0);
      EXPECT_OK(ncast_mem_free(mine.comm, own));
    });
  }
}

template <ncast_dtype Dtype>
__global__ void pass_encoded(const __grid_constant__ ncast_channels channels, const char* send, char* recv,
                             size_t bytes, uint32_t* stopped) {
  using Codec = Window<Dtype>;
  extern __shared__ char shared_memory[];
  const Place place(channels);
  auto& memory = reinterpret_cast<BlockMemory<Codec>*>(shared_memory)[place.warp];
  Sender out(channels, place.next, place.ring);
  Receiver in(channels, place.previous, place.ring);
  for (size_t at = size_t{place.ring} * Codec::values_bytes; at < bytes; at += size_t{rings} * Codec::values_bytes) {
    const auto part = static_cast<uint32_t>(min(bytes - at, size_t{Codec::values_bytes}));
    if (out.put_encoded(send + at, part, memory) != 0 && out.signal() && in.get_decoded(recv + at, part, memory))
      continue;
    count_up(stopped, 1);
    return;
  }
}

// Sends blocks of every pattern, coded and raw, and a shorter last block.
template <ncast_dtype Dtype>
void check_encoded(int rank, int ranks, const ncast_unique_id& id, std::barrier<>& everybody) {
  using Codec = Window<Dtype>;
  const size_t value_bytes = ncast_dtype_bytes(Dtype);
  const size_t bytes = (29 * Codec::values_bytes / value_bytes + 13) * value_bytes;
  const auto sent_by = [&](int source) {
    tests::Random random(static_cast<uint64_t>(source) + 1);
    std::vector<uint8_t> values;
    for (int pattern = 0; values.size() < bytes; ++pattern) {
      const auto block = tests::make_block(codec::window::value_type(Dtype), pattern % 16, random);
      values.insert(values.end(), block.begin(), block.end());
    }
    values.resize(bytes);
    return values;
  };
  Rank mine(rank, ranks, id, everybody, Codec::values_bytes);
  const std::vector<uint8_t> sent = sent_by(rank), expected = sent_by((rank + ranks - 1) % ranks);
  char *send = nullptr, *recv = nullptr;
  EXPECT_CUDA(cudaMalloc(&send, bytes));
  EXPECT_CUDA(cudaMalloc(&recv, bytes));
  EXPECT_CUDA(cudaMemcpy(send, sent.data(), bytes, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaMemset(recv, 0xa5, bytes));
  EXPECT_CUDA(cudaDeviceSynchronize());
  constexpr size_t shared_bytes = warps * sizeof(BlockMemory<Codec>);
  EXPECT_CUDA(cudaFuncSetAttribute(pass_encoded<Dtype>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared_bytes)));
  mine.begin();
  pass_encoded<Dtype><<<ctas, warps * 32, shared_bytes, mine.stream>>>(mine.channels, send, recv, bytes, mine.counts);
  mine.end();
  EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
  EXPECT(mine.count() == 0);
  std::vector<uint8_t> received(bytes);
  EXPECT_CUDA(cudaMemcpy(received.data(), recv, bytes, cudaMemcpyDeviceToHost));
  EXPECT(received == expected);
  EXPECT_CUDA(cudaFree(send));
  EXPECT_CUDA(cudaFree(recv));
}

TEST_CASE("encoded messages of every type are decoded exactly") {
  using Check = void (*)(int, int, const ncast_unique_id&, std::barrier<>&);
  const Check checks[] = {check_encoded<NCAST_BFLOAT16>,    check_encoded<NCAST_FLOAT16>,
                          check_encoded<NCAST_FLOAT32>,     check_encoded<NCAST_FLOAT64>,
                          check_encoded<NCAST_FLOAT8_E4M3>, check_encoded<NCAST_FLOAT8_E5M2>};
  for (const int ranks : {1, 2}) {
    for (const Check check : checks) {
      run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
        check(rank, ranks, id, everybody);
      });
    }
  }
}

__global__ void write_at(uint32_t* of_peer, uint32_t value) { of_peer[threadIdx.x] = value + threadIdx.x; }

TEST_CASE("kernels write to memory that peers have registered") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
      Rank mine(rank, ranks, id, everybody);
      constexpr size_t bytes = 32 * sizeof(uint32_t);
      const bool shares = rank != 2;
      const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
      uint32_t* own = nullptr;
      void* of_next = &own;
      uint32_t region = 0;
      EXPECT_CUDA(cudaMalloc(&own, bytes));
      EXPECT_OK(ncast_comm_register(mine.comm, shares ? own : nullptr, shares ? bytes : 0, &region));
      EXPECT_OK(ncast_region_peer(mine.comm, region, next, &of_next));
      EXPECT((of_next != nullptr) == (next != 2));
      EXPECT(failed_with(ncast_region_peer(mine.comm, region + 1, next, &of_next), NCAST_INVALID_ARGUMENT,
                         "is not registered"));
      EXPECT(failed_with(ncast_region_peer(mine.comm, region, ranks, &of_next), NCAST_INVALID_ARGUMENT, "rank is"));
      EXPECT_OK(ncast_region_peer(mine.comm, region, next, &of_next));
      mine.begin();
      if (of_next != nullptr) write_at<<<1, 32, 0, mine.stream>>>(static_cast<uint32_t*>(of_next), 1000u * rank);
      mine.end();
      uint32_t found[32];
      EXPECT_CUDA(cudaMemcpy(found, own, bytes, cudaMemcpyDeviceToHost));
      for (uint32_t i = 0; shares && i < 32; ++i) EXPECT(found[i] == 1000u * static_cast<uint32_t>(previous) + i);
      EXPECT_OK(ncast_comm_deregister(mine.comm, region));
      EXPECT(failed_with(ncast_region_peer(mine.comm, region, rank, &of_next), NCAST_INVALID_ARGUMENT,
                         "is not registered"));
      EXPECT_CUDA(cudaFree(own));
    });
  }
}

TEST_CASE("invalid arguments are rejected without stopping the communicator") {
  run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 1, id, everybody);
    ncast_channels channels;
    void* memory = &channels;
    const auto bad = NCAST_INVALID_ARGUMENT;
    EXPECT(failed_with(ncast_channels_create(nullptr, 1, 4096, &channels), bad, "ncast_channels_create: comm is NULL"));
    EXPECT(failed_with(ncast_channels_create(mine.comm, 0, 4096, &channels), bad, "rings is 0"));
    EXPECT(failed_with(ncast_channels_create(mine.comm, 1, 4095, &channels), bad, "slot_bytes is 4095"));
    EXPECT(failed_with(ncast_channels_create(mine.comm, 1, 4096, nullptr), bad, "channels is NULL"));
    EXPECT(failed_with(ncast_mem_alloc(mine.comm, 0, &memory), bad, "bytes is 0"));
    EXPECT(
        failed_with(ncast_mem_peer(mine.comm, &channels, 0, &memory), bad, "was not allocated by this communicator"));
    EXPECT(failed_with(ncast_mem_peer(mine.comm, &channels, 1, &memory), bad, "rank is 1"));
    EXPECT(failed_with(ncast_mem_free(mine.comm, &channels), bad, "ncast_mem_free: "));
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
    ncast_comm* host = nullptr;
    const ncast_unique_id other = new_id();
    EXPECT_OK(ncast_comm_create(&host, 1, &other, 0, nullptr));
    EXPECT(failed_with(ncast_mem_alloc(host, 1, &memory), NCAST_UNSUPPORTED, "does not use the CUDA backend"));
    EXPECT_OK(ncast_comm_destroy(host));
  });
}

}  // namespace
}  // namespace narrowcast::testing
