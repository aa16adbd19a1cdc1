// What channels of users' kernels do when their communicator stops: timeouts, aborts and wrong messages.
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <numeric>

#include "channel/channel_rank.h"
#include "narrowcast/narrowcast.h"

namespace narrowcast::testing {
namespace {

__global__ void wait_for_nothing(const __grid_constant__ ncast_channels channels, uint32_t* stopped) {
  const Place place(channels);
  Receiver in(channels, place.previous, place.ring);
  if (in.poll()) return;
  if (!in.wait()) count_up(stopped, 1);
}

TEST_CASE("a kernel whose wait times out ends, and the communicator reports the timeout") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 2, id, everybody, 4096, 2);
    mine.begin();
    if (rank == 0) wait_for_nothing<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    mine.end();
    if (rank == 0) EXPECT(mine.count() == rings * 32);
    if (rank == 0) EXPECT(is_error(mine.comm, NCAST_TIMEOUT, "rank 0 waited for rank 1"));
  });
}

TEST_CASE("an abort ends a waiting kernel") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 2, id, everybody, 4096, 0);  // no limit
    mine.begin();
    if (rank == 0) wait_for_nothing<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    if (rank == 1) EXPECT_OK(ncast_comm_abort(mine.comm));
    mine.end();
    if (rank == 0) EXPECT(mine.count() == rings * 32);
    if (rank == 0) EXPECT(is_error(mine.comm, NCAST_ABORTED, ""));
  });
}

__global__ void send_wrong_lengths(const __grid_constant__ ncast_channels channels, uint32_t* stopped) {
  __shared__ char buffers[warps][4096];
  const Place place(channels);
  Sender out(channels, place.next, place.ring);
  Receiver in(channels, place.previous, place.ring);
  if (out.put(buffers[place.warp], 100) && out.signal() && in.get(buffers[place.warp], 101)) return;
  if (place.thread == 0) count_up(stopped, 1);
}

// Leaves one message and one packet message in each ring of the channel from this rank to itself.
__global__ void leave_messages(const __grid_constant__ ncast_channels channels, uint32_t* failed) {
  __shared__ char buffer[64];
  const Place place(channels);
  Sender out(channels, channels.rank, place.ring);
  PacketSender packets_out(channels, channels.rank, place.ring);
  if (!out.put(buffer, sizeof buffer) || !out.signal() || !packets_out.put(buffer, sizeof buffer)) count_up(failed, 1);
}
// Counts the operations that succeed. If not stopped, all would: the messages have arrived, and the rings have room.
__global__ void try_everything(const __grid_constant__ ncast_channels channels, uint32_t* succeeded) {
  __shared__ char buffers[warps][64];
  const Place place(channels);
  char* const buffer = buffers[place.warp];
  uint32_t count = 0;
  {
    Receiver in(channels, channels.rank, place.ring);
    PacketReceiver packets_in(channels, channels.rank, place.ring);
    if (in.poll()) ++count;
    if (in.get(buffer, sizeof buffers[0])) ++count;
    if (packets_in.poll()) ++count;
    if (packets_in.get(buffer, sizeof buffers[0])) ++count;
  }
  Sender out(channels, channels.rank, place.ring);
  PacketSender packets_out(channels, channels.rank, place.ring);
  if (out.put(buffer, sizeof buffers[0])) ++count;
  if (out.signal()) ++count;
  if (packets_out.put(buffer, sizeof buffers[0])) ++count;
  count_up(succeeded, count);
}
// Tries a direct write and a direct read, whose results must not appear if the communicator is stopped.
__global__ void write_directly(const __grid_constant__ ncast_channels channels, uint32_t* to, uint32_t value) {
  Sender out(channels, channels.rank, 0);
  Receiver in(channels, channels.rank, 0);
  __shared__ uint32_t from;
  from = value;
  out.put_direct(to, &from, sizeof from);
  in.get_direct(to + 1, &from, sizeof from);
}

// Shows that without a stop all operations succeed, which the tests of stops below rely on.
TEST_CASE("the next kernel receives messages that one kernel left") {
  run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 1, id, everybody);
    mine.begin();
    leave_messages<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    mine.end();
    EXPECT(mine.count() == 0);
    try_everything<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    mine.end();
    EXPECT(mine.count() == 7 * rings * 32);
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
  });
}

TEST_CASE("after a failure later kernels do nothing, and the first failure is reported") {
  run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 1, id, everybody, 4096, 0.5);
    void* memory = nullptr;
    EXPECT_OK(ncast_mem_alloc(mine.comm, 2 * sizeof(uint32_t), &memory));
    ncast_channels silent;
    EXPECT_OK(ncast_channels_create(mine.comm, rings, 4096, &silent));
    mine.begin();
    leave_messages<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    mine.end();
    EXPECT(mine.count() == 0);
    wait_for_nothing<<<ctas, warps * 32, 0, mine.stream>>>(silent, mine.counts);
    mine.end();
    EXPECT(mine.count() == rings * 32);
    std::fill_n(mine.counts, GpuRank::most_threads, 0);
    try_everything<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    send_wrong_lengths<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts + 1024);  // would be CORRUPT
    write_directly<<<1, 32, 0, mine.stream>>>(mine.channels, static_cast<uint32_t*>(memory), 7);
    mine.end();
    EXPECT(std::accumulate(mine.counts, mine.counts + 1024, 0u) == 0);
    EXPECT(mine.count() == rings);
    uint32_t written[2] = {1, 1};
    EXPECT_CUDA(cudaMemcpy(written, memory, sizeof written, cudaMemcpyDefault));
    EXPECT(written[0] == 0);
    EXPECT(written[1] == 0);
    EXPECT_OK(ncast_comm_abort(mine.comm));  // comes after the timeout, so it must not be reported
    EXPECT(is_error(mine.comm, NCAST_TIMEOUT, "rank 0 waited for rank 0"));
  });
}

TEST_CASE("after an abort kernels do not receive messages that have arrived") {
  run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 1, id, everybody);
    mine.begin();
    leave_messages<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    mine.end();
    EXPECT(mine.count() == 0);
    EXPECT_OK(ncast_comm_abort(mine.comm));
    usleep(200000);  // the abort reaches the GPU by an asynchronous copy
    try_everything<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    mine.end();
    EXPECT(mine.count() == 0);
    EXPECT(is_error(mine.comm, NCAST_ABORTED, ""));
  });
}

TEST_CASE("a message of unexpected length stops the communicator") {
  run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 1, id, everybody);
    mine.begin();
    send_wrong_lengths<<<ctas, warps * 32, 0, mine.stream>>>(mine.channels, mine.counts);
    mine.end();
    EXPECT(mine.count() == rings);
    EXPECT(is_error(mine.comm, NCAST_CORRUPT, "from rank 0"));
  });
}

}  // namespace
}  // namespace narrowcast::testing
