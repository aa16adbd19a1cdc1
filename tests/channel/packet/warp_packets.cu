// Tests short messages by packets for users' kernels through the public interface.
#include <cuda_runtime.h>

#include <barrier>
#include <cstdlib>

#include "channel/channel_rank.h"
#include "narrowcast/narrowcast.h"

namespace narrowcast::testing {
namespace {

// Sends several messages at a time between unaligned buffers. Counts wrong bytes, including those around the received
// data. After the last launch no ring may contain a message; after the others it may be one of the peer's next launch.
__global__ void pass_packets(const __grid_constant__ ncast_channels channels, uint32_t first, uint32_t messages,
                             bool is_last, uint32_t* wrong) {
  constexpr uint32_t max_bytes = NCAST_PACKET_MESSAGE_BYTES;
  __shared__ uint8_t sent[warps][max_bytes + 16], got[warps][max_bytes + 16];
  const Place place(channels);
  PacketSender out(channels, place.next, place.ring);
  PacketReceiver in(channels, place.previous, place.ring);
  const auto length = [](uint32_t message) {
    return message % 5 == 0 ? max_bytes : message % 7 == 0 ? 0 : message * 977 % (message % 3 == 0 ? 64 : max_bytes);
  };
  uint32_t bad = 0;
  for (uint32_t begin = first; begin < first + messages; begin += batch) {
    for (uint32_t message = begin; message < begin + batch; ++message) {
      uint8_t* const from = sent[place.warp] + message % 5;
      for (uint32_t i = place.thread; i < length(message); i += 32)
        from[i] = byte_of(channels.rank, place.ring, message, i);
      if (!out.put(from, length(message))) bad += 1000000;
    }
    for (uint32_t message = begin; message < begin + batch; ++message) {
      uint8_t *const all = got[place.warp], *const to = all + 4 + message % 7;
      const uint32_t bytes = length(message);
      for (uint32_t i = place.thread; i < max_bytes + 16; i += 32) all[i] = 0xa5;
      __syncwarp();
      for (int polls = 0; polls < 100 && !in.poll(); ++polls) {
      }
      if (!in.get(to, bytes)) bad += 1000000;
      for (uint32_t i = place.thread; i < max_bytes + 16; i += 32) {
        const bool inside = all + i >= to && all + i < to + bytes;
        bad += all[i] != (inside ? byte_of(place.previous, place.ring, message, all + i - to) : 0xa5);
      }
      __syncwarp();
    }
  }
  if (!out.flush() || (is_last && in.poll())) bad += 1000000;
  if (bad != 0) count_up(wrong, bad);
}

TEST_CASE("packet messages arrive complete and in order across kernel launches, over any link") {
  for (const bool through_host : {false, true}) {
    if (through_host) setenv("NARROWCAST_P2P", "0", 1);
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(through_host);
      CAPTURE(ranks);
      run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
        Rank mine(rank, ranks, id, everybody);
        mine.begin();
        constexpr uint32_t messages = 30;
        const uint32_t launches = is_reduced_run ? 1 : 4;
        for (uint32_t launch = 0; launch < launches; ++launch) {
          pass_packets<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, launch * messages, messages,
                                                             launch == launches - 1, mine.counts);
          mine.launched();
        }
        mine.end();
        EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
        EXPECT(mine.count() == 0);
      });
    }
    unsetenv("NARROWCAST_P2P");
  }
}

// Sends more messages than a ring has use numbers (2^20 - 1), so that the numbers repeat.
__global__ void wrap_around(const __grid_constant__ ncast_channels channels, uint32_t messages, uint32_t* wrong) {
  PacketSender out(channels, channels.rank, 0);
  PacketReceiver in(channels, channels.rank, 0);
  __shared__ uint32_t sent[64], got[64];
  uint32_t bad = 0;
  for (uint32_t message = 0; message < messages && bad == 0; ++message) {
    const uint32_t words = message % 3 == 0 ? 33 : 2;
    for (uint32_t i = threadIdx.x; i < words; i += 32) sent[i] = message * 31 + i;
    if (!out.put(sent, 4 * words) || !in.get(got, 4 * words)) ++bad;
    for (uint32_t i = threadIdx.x; i < words; i += 32) bad += got[i] != message * 31 + i;
    __syncwarp();
  }
  if (bad != 0) count_up(wrong, bad);
}

TEST_CASE("old packets are never taken for new ones") {
  run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 1, id, everybody, 4096, 60);
    mine.begin();
    wrap_around<<<1, 32, 0, mine.stream>>>(mine.channels, is_reduced_run ? 1000 : (1 << 20) + 1000, mine.counts);
    mine.end();
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
    EXPECT(mine.count() == 0);
  });
}

__global__ void send_packets_of_wrong_lengths(const __grid_constant__ ncast_channels channels, uint32_t* stopped) {
  __shared__ char buffers[warps][NCAST_PACKET_MESSAGE_BYTES];
  const Place place(channels);
  PacketSender out(channels, place.next, place.ring);
  PacketReceiver in(channels, place.previous, place.ring);
  if (out.put(buffers[place.warp], 100) && in.get(buffers[place.warp], sizeof buffers[0])) return;
  if (place.thread == 0) count_up(stopped, 1);
}

TEST_CASE("a packet message of unexpected length stops the communicator") {
  run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 1, id, everybody);
    mine.begin();
    send_packets_of_wrong_lengths<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    mine.end();
    EXPECT(mine.count() == rings);
    EXPECT(is_error(mine.comm, NCAST_CORRUPT, "from rank 0"));
  });
}

}  // namespace
}  // namespace narrowcast::testing
