// Forwarders between ranks of this process, whose kernels are threads, and against peers that misbehave.
#include "channel/network/forwarder.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "kernel_ends.h"
#include "stream_pair.h"
#include "support/last_error.h"
#include "support/ranks.h"
#include "support/sanitized.h"

namespace narrowcast::testing {
namespace {

using namespace channel;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Ranks that are connected to each other.
struct Ranks {
  std::vector<RankMemory> memory;
  std::vector<std::unique_ptr<Forwarder>> forwarders;
  std::atomic<int> failures{0};

  Ranks(int ranks, uint32_t rings, uint32_t first_count = 0, uint32_t flows = 1) {
    for (int rank = 0; rank < ranks; ++rank) {
      memory.emplace_back(rank, ranks, rings);
      memory.back().begin_at(first_count);
    }
    for (int rank = 0; rank < ranks; ++rank)
      for (int peer = 0; peer < rank; ++peer) {
        for (uint32_t flow = 0; flow < flows; ++flow) {
          StreamPair pair;
          add(rank, peer, std::move(pair.first), {flow, flows});
          add(peer, rank, std::move(pair.second), {flow, flows});
        }
      }
    for (const auto& forwarder : forwarders) EXPECT_OK(forwarder->start());
  }
  ~Ranks() {
    for (const auto& forwarder : forwarders) forwarder->leave();
    forwarders.clear();
  }

 private:
  void add(int rank, int peer, std::unique_ptr<Stream> stream, FlowShare share) {
    RankMemory& own = memory[static_cast<size_t>(rank)];
    forwarders.push_back(std::make_unique<Forwarder>(rank, peer, own.ranks, std::move(stream), own.of(peer, share),
                                                     [this](int, const std::string&) { ++failures; }));
  }
};

// What a ring carries in a call: both ends compute it.
struct RingCall {
  std::mt19937 random;
  uint32_t slot_bytes, payloads, number = 0;

  RingCall(uint32_t seed, uint32_t call, int from, int to, uint32_t ring)
      : random(seed * 7919 + call * 104729 + static_cast<uint32_t>(from * 64 + to * 8) + ring * 1299709) {
    std::mt19937 of_call(seed + call);
    slot_bytes = of_call() % 3 == 0 ? ChannelLayout::large_slot_bytes : ChannelLayout::slot_bytes;
    payloads = random() % 40;
    if (random() % 4 == 0) payloads = random() % 3;
  }
  bool has_next() const { return number < payloads; }
  // Changes to the next payload.
  std::vector<char> next() {
    ++number;
    const uint32_t kind = random() % 4, most = slot_bytes / 16;
    const uint32_t bytes = 16 * (kind == 0 ? 1 : kind == 1 ? most : 1 + random() % most);
    std::vector<char> values(bytes);
    uint32_t word = static_cast<uint32_t>(random());
    for (uint32_t i = 0; i < bytes; i += 4, ++word) std::memcpy(&values[i], &word, sizeof word);
    return values;
  }
};

// One call of a rank: sends and receives everything.
void run_call(RankMemory& memory, uint32_t seed, uint32_t call) {
  struct End {
    RingCall content;
    SendingEnd sending;
    ReceivingEnd receiving;
  };
  std::vector<End> outgoing, incoming;
  for (int peer = 0; peer < memory.ranks; ++peer) {
    if (peer == memory.rank) continue;
    for (uint32_t ring = 0; ring < memory.layout.rings(); ++ring) {
      RingCall out(seed, call, memory.rank, peer, ring), in(seed, call, peer, memory.rank, ring);
      const RingPlace place = memory.place(peer, ring, out.slot_bytes);
      outgoing.push_back({out, SendingEnd(place), ReceivingEnd(place)});
      incoming.push_back({in, SendingEnd(place), ReceivingEnd(place)});
    }
  }
  std::mt19937 choice(seed + static_cast<uint32_t>(memory.rank));
  for (bool done = false; !done; std::this_thread::yield()) {
    done = true;
    for (End& end : outgoing) {
      while (end.content.has_next() && end.sending.can_put()) {
        const std::vector<char> values = end.content.next();
        // A flag that is deferred is followed by another one, or by the wait for a slot.
        end.sending.put(values.data(), static_cast<uint32_t>(values.size()), end.content.number,
                        !end.content.has_next(), choice() % 3 == 0);
      }
      end.sending.publish();
      done = done && !end.content.has_next();
    }
    for (End& end : incoming) {
      SlotFlag flag{};
      const char* payload = nullptr;
      while (end.content.has_next() && end.receiving.poll(&flag, &payload)) {
        const std::vector<char> values = end.content.next();
        EXPECT(flag.block() == end.content.number);
        EXPECT(flag.last() == !end.content.has_next());
        EXPECT(flag.payload().bytes() == values.size());
        EXPECT(std::equal(values.begin(), values.end(), payload));
        end.receiving.release();
      }
      done = done && !end.content.has_next();
    }
  }
  for (End& end : outgoing) end.sending.close();
  for (End& end : incoming) end.receiving.close();
}

void run_calls(int ranks, uint32_t rings, uint32_t first_count, uint32_t seed, uint32_t calls, uint32_t flows = 1) {
  Ranks all(ranks, rings, first_count, flows);
  run_threads(ranks, [&](int rank) {
    for (uint32_t call = 0; call < calls; ++call) run_call(all.memory[static_cast<size_t>(rank)], seed, call);
  });
  CHECK(all.failures == 0);
}

TEST_CASE("payloads of any ring, size and slot reach the peers in order") {
  uint32_t seed = 5;
  for (const int ranks : {2, 3, 4}) {
    for (const uint32_t rings : {1u, 7u, 60u}) {
      CAPTURE(ranks);
      CAPTURE(rings);
      run_calls(ranks, rings, 0, seed++, 12);
    }
  }
}

TEST_CASE("flows between two ranks share the rings, of which some may have none") {
  run_calls(2, 60, 0, 21, 8, 3);
  run_calls(2, 2, 0, 22, 8, 4);
}

TEST_CASE("counts of payloads wrap around") {
  run_calls(2, 3, SlotFlag::uses - 50, 11, 12);
  run_calls(2, 3, UINT32_MAX - 49, 12, 12);
}

TEST_CASE("announcements of calls reach the peer") {
  Ranks all(2, 1);
  for (uint32_t number = 1; number < 20; ++number) {
    const uint32_t at = number % WrittenPart::most_call_words;
    const auto part = [&](char* scratch) { return WrittenPart(scratch, 1, 2, all.memory[0].layout, words_offset); };
    const uint64_t word = CallWord::of(number, 77).word;
    part(all.memory[1].mirror(0)).call_word(at).store(word);
    while (part(all.memory[0].scratch.data()).call_word(at).load() != word) std::this_thread::yield();
  }
}

TEST_CASE("payloads and credits that were written before a rank leaves reach the peer") {
  for (int round = 0; round < 50; ++round) {
    Ranks all(2, 1);
    SendingEnd sending(all.memory[0].place(1, 0, 4096));
    const std::vector<char> values(4096, 'x');
    sending.put(values.data(), 4096, 3, true, false);
    for (const auto& forwarder : all.forwarders) forwarder->leave();
    all.forwarders.clear();
    SlotFlag flag{};
    const char* payload = nullptr;
    REQUIRE(ReceivingEnd(all.memory[1].place(0, 0, 4096)).poll(&flag, &payload));
    CHECK(std::equal(values.begin(), values.end(), payload));
    CHECK(all.failures == 0);
  }
}

TEST_CASE("idle forwarders use little processor time") {
  Ranks all(2, 256);
  std::this_thread::sleep_for(milliseconds(200));
  const std::clock_t before = std::clock();  // of this process
  std::this_thread::sleep_for(seconds(1));
  CHECK(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC < (tests::sanitized ? 0.5 : 0.15));
}

// --- peers that misbehave -------------------------------------------------------------------------------------------

// Rank 0, whose peer is the other end of a socket.
struct Victim {
  RankMemory memory{0, 2, 4};
  ConnectionPair pair;
  std::atomic<int> failures{0}, error{0};
  std::unique_ptr<Forwarder> forwarder = std::make_unique<Forwarder>(0, 1, 2, tcp_stream(std::move(pair.first)),
                                                                     memory.of(1), [this](int why, const std::string&) {
                                                                       error = why;
                                                                       ++failures;
                                                                     });

  Victim() { EXPECT_OK(forwarder->start()); }
  int socket() const { return pair.second->socket.get(); }
  void send(const void* bytes, size_t count) const {
    EXPECT(::send(socket(), bytes, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
  }
  void send(const std::vector<ForwardedItem>& items) const {
    const BatchHeader header{BatchHeader::current_magic, static_cast<uint32_t>(items.size())};
    send(&header, sizeof header);
    if (!items.empty()) send(items.data(), items.size() * sizeof items[0]);
  }
  void wait_for_failure() const {
    while (failures == 0) std::this_thread::yield();
  }
};

ForwardedItem payload_item(uint32_t ring, uint32_t use, uint32_t bytes, bool large = false) {
  return {ForwardedItem::payload, ring, SlotFlag::of(use, large, 0, false, PayloadSize::of(bytes, false)).word};
}

TEST_CASE("what is not valid ends the connection and changes no memory") {
  const std::vector<std::vector<ForwardedItem>> batches = {
      {},
      std::vector<ForwardedItem>(most_items + 1, {ForwardedItem::call_word, 0, 0}),
      {{0, 0, 0}},
      {{9, 0, 0}},
      {payload_item(4, 1, 16)},
      {payload_item(0, 2, 16)},
      {payload_item(0, 1, 0)},
      {payload_item(0, 1, 4112)},
      {payload_item(0, 1, 8208, true)},
      {payload_item(0, 0, 16)},
      {{ForwardedItem::payload, 0, SlotFlag::of(1, false, 0, true, SlotFlag::written()).word}},
      {{ForwardedItem::credit, 0, 1}},
      {{ForwardedItem::credit, 0, UINT32_MAX}},
      {{ForwardedItem::credit, 0, uint64_t{1} << 32}},
      {{ForwardedItem::credit, 4, 0}},
      {{ForwardedItem::call_word, WrittenPart::most_call_words, 5}},
  };
  for (size_t i = 0; i < batches.size(); ++i) {
    CAPTURE(i);
    const TimeLimit limit;
    Victim victim;
    const std::vector<char> before = victim.memory.scratch;
    victim.send(batches[i]);
    victim.wait_for_failure();
    CHECK(victim.error == EBADMSG);
    CHECK(victim.memory.scratch == before);
  }
  Victim victim;
  victim.send("GET / HTTP/1.1\r\n\r\n", 18);
  victim.wait_for_failure();
  CHECK(victim.error == EBADMSG);
}

TEST_CASE("a peer cannot fill a slot that is not released") {
  for (const bool large : {false, true}) {
    Victim victim;
    const uint32_t slots = large ? 4 : 8;
    std::vector<ForwardedItem> items;
    for (uint32_t use = 1; use <= slots; ++use) items.push_back(payload_item(1, use, 16, large));
    const std::vector<char> values(16 * items.size(), 'v');
    victim.send(items);
    victim.send(values.data(), values.size());
    SlotFlag flag{};
    const char* payload = nullptr;
    const RingPlace place = victim.memory.place(1, 1, large ? 8192 : 4096);
    while (!ReceivingEnd(place).poll(&flag, &payload)) std::this_thread::yield();
    CHECK(victim.failures == 0);
    victim.send({payload_item(1, slots + 1, 16, large)});
    victim.wait_for_failure();
    CHECK(victim.error == EBADMSG);
  }
}

TEST_CASE("a payload that is cut off is not announced") {
  Victim victim;
  victim.send({payload_item(2, 1, 64), payload_item(2, 2, 64)});
  const std::vector<char> values(100, 'v');
  victim.send(values.data(), values.size());
  shutdown(victim.socket(), SHUT_RDWR);
  victim.wait_for_failure();
  CHECK(victim.error == 0);
  SlotFlag flag{};
  const char* payload = nullptr;
  ReceivingEnd receiving(victim.memory.place(1, 2, 4096));
  CHECK(receiving.poll(&flag, &payload));
  receiving.release();
  CHECK_FALSE(receiving.poll(&flag, &payload));
}

TEST_CASE("the end of a connection is a failure unless a rank has left") {
  {
    Victim victim;
    victim.pair.second.reset();
    victim.wait_for_failure();
    CHECK((victim.error == 0 || victim.error == ECONNRESET));
    victim.forwarder.reset();
    CHECK(victim.failures == 1);
  }
  {
    Victim victim;
    victim.send({{ForwardedItem::goodbye, 0, 0}});
    victim.pair.second.reset();
    victim.forwarder.reset();
    CHECK(victim.failures == 0);
  }
  Victim victim;
  victim.send({{ForwardedItem::goodbye, 0, 0}, {ForwardedItem::call_word, 0, 1}});
  victim.wait_for_failure();
  CHECK(victim.error == EBADMSG);
}

TEST_CASE("a peer that does not read delays the end by a second at most") {
  Victim victim;
  const std::vector<char> values(4096, 'v');
  for (uint32_t ring = 0; ring < 4; ++ring) {
    SendingEnd sending(victim.memory.place(1, ring, 4096));
    for (uint32_t block = 0; block < 8; ++block) sending.put(values.data(), 4096, block, false, false);
    sending.close();
  }
  const auto begin = std::chrono::steady_clock::now();
  victim.forwarder.reset();
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(10000));
  CHECK(victim.failures == 0);
}

TEST_CASE("the reason for the end of a connection is reported with the rank") {
  CHECK(fail_of_connection("rank 1 (pid 7 on b)", 0, "") == NCAST_REMOTE_ERROR);
  CHECK(error_contains("rank 1 (pid 7 on b) died"));
  CHECK(fail_of_connection("rank 1", ETIMEDOUT, "") == NCAST_REMOTE_ERROR);
  CHECK(error_contains("its host does not answer"));
  CHECK(fail_of_connection("rank 1", EBADMSG, "") == NCAST_CORRUPT);
}

}  // namespace
}  // namespace narrowcast::testing
