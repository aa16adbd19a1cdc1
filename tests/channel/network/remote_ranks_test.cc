// Ranks of GPUs, in processes that take themselves to be on several hosts. Their kernels are threads.
#include "channel/network/remote_ranks.h"

#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/tcp_rendezvous.h"
#include "doctest/doctest.h"
#include "kernel_ends.h"
#include "network_hub.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace channel;

// A rank in a process of its own.
struct RemoteRank {
  std::unique_ptr<bootstrap::Rendezvous> rendezvous;
  RemoteRanks remote;
  RankMemory memory;
  std::mutex mutex;
  ncast_status status = NCAST_OK;  // of the first failure
  std::string message;

  RemoteRank(const NetworkHub& hub, int rank, const std::vector<const char*>& hosts, double call_seconds = 20)
      : memory(rank, static_cast<int>(hosts.size()), 2) {
    setenv("NARROWCAST_HOSTID", hosts[static_cast<size_t>(rank)], 1);
    setenv("NARROWCAST_SOCKET_IFNAME", "lo", 1);
    EXPECT_OK(bootstrap::TcpRendezvous::join(hub.address, hub.secret, rank, memory.ranks, {30}, &rendezvous));
    EXPECT_OK(remote.find(*rendezvous));
    if (!remote.span_hosts()) return;
    const auto failed = [this](ncast_status why, const char* text) {
      const std::lock_guard lock(mutex);
      if (status == NCAST_OK) message = text;
      status = why;
    };
    EXPECT_OK(remote.connect(
        *rendezvous, hub.secret, {30}, {call_seconds}, [this](int peer) { return memory.of(peer); }, failed));
    EXPECT_OK(rendezvous->barrier());
  }
  ncast_status failure() {
    const std::lock_guard lock(mutex);
    return status;
  }
};

TEST_CASE("every rank sends to those of other hosts") {
  const std::vector<const char*> hosts = {"a", "b", "a", "c"};
  const uint32_t masks[] = {0b1010, 0b1101, 0b1010, 0b0111};
  const NetworkHub hub;
  run_processes(4, [&](int rank) {
    RemoteRank own(hub, rank, hosts);
    EXPECT(own.remote.span_hosts());
    EXPECT(own.remote.mask() == masks[rank]);
    EXPECT(own.remote.name_of(3).starts_with("rank 3 (pid "));
    EXPECT(own.remote.name_of(3).ends_with(" on c)"));
    for (int peer = 0; peer < 4; ++peer) {
      if ((masks[rank] >> peer & 1) == 0) continue;
      const std::vector<char> values(64, static_cast<char>('a' + rank));
      SendingEnd(own.memory.place(peer, 1, 4096)).put(values.data(), 64, 5, true, false);
    }
    for (int peer = 0; peer < 4; ++peer) {
      if ((masks[rank] >> peer & 1) == 0) continue;
      SlotFlag flag{};
      const char* payload = nullptr;
      const ReceivingEnd receiving(own.memory.place(peer, 1, 4096));
      while (!receiving.poll(&flag, &payload)) std::this_thread::yield();
      EXPECT(flag.payload().bytes() == 64);
      EXPECT(payload[0] == 'a' + peer);
      EXPECT(payload[63] == 'a' + peer);
    }
    EXPECT_OK(own.rendezvous->barrier());
    EXPECT(own.remote.payload_bytes() == uint64_t{64} * static_cast<uint32_t>(std::popcount(masks[rank])));
    own.remote.disconnect();
    EXPECT(own.failure() == NCAST_OK);
    EXPECT_OK(own.rendezvous->barrier());
  });
}

TEST_CASE("ranks of one host need no connections") {
  const NetworkHub hub;
  run_processes(2, [&](int rank) {
    const RemoteRank own(hub, rank, {"a", "a"});
    EXPECT(!own.remote.span_hosts());
    EXPECT(own.remote.mask() == 0);
    EXPECT(own.remote.name_of(1) == "rank 1");
  });
}

TEST_CASE("a rank that dies is named, with its host") {
  const NetworkHub hub;
  run_processes(3, [&](int rank) {
    RemoteRank own(hub, rank, {"a", "a", "b"});
    if (rank == 2) _exit(0);
    while (own.failure() == NCAST_OK) std::this_thread::yield();
    EXPECT(own.failure() == NCAST_REMOTE_ERROR);
    EXPECT(own.message == own.remote.name_of(2) + " died");
  });
}

}  // namespace
}  // namespace narrowcast::testing
