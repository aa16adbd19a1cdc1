// Rings and bells, between threads and between processes.
#include "channel/host/ring.h"

#include <sys/mman.h>

#include <cstring>

#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace channel;
using std::chrono::milliseconds;

constexpr RingShape small_ring = {3, 128};

// Two bells and a ring in memory that is shared with forked processes.
struct SharedRing {
  Doorbell* sender_bell;
  Doorbell* receiver_bell;
  void* ring;

  SharedRing() {
    void* memory = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    REQUIRE(small_ring.ring_bytes() + 256 <= 8192);
    sender_bell = new (memory) Doorbell;
    receiver_bell = new (static_cast<char*>(memory) + 64) Doorbell;
    ring = new (static_cast<char*>(memory) + 256) RingState;
  }
  ~SharedRing() { munmap(sender_bell, 8192); }
};

void send_numbers(SharedRing& shared, uint64_t count) {
  RingSender sender(shared.ring, small_ring, shared.receiver_bell);
  for (uint64_t number = 0; number < count; ++number) {
    for (;;) {
      const uint32_t seen = shared.sender_bell->epoch();
      if (const Slot slot = sender.next_free()) {
        slot.header->payload_bytes = sizeof number;
        std::memcpy(slot.payload, &number, sizeof number);
        break;
      }
      shared.sender_bell->wait(seen, milliseconds(10000));
    }
    sender.put();
  }
}

// Receives `count` numbers and returns how many were wrong or out of order.
uint64_t receive_numbers(SharedRing& shared, uint64_t count) {
  RingReceiver receiver(shared.ring, small_ring, shared.sender_bell);
  uint64_t wrong = 0;
  for (uint64_t expected = 0; expected < count; ++expected) {
    uint64_t number = 0;
    for (;;) {
      const uint32_t seen = shared.receiver_bell->epoch();
      if (const Slot slot = receiver.next_filled()) {
        std::memcpy(&number, slot.payload, sizeof number);
        wrong += number != expected || slot.header->payload_bytes != sizeof number;
        break;
      }
      shared.receiver_bell->wait(seen, milliseconds(10000));
    }
    receiver.release();
  }
  return wrong;
}

TEST_CASE("a new ring has all slots free") {
  SharedRing shared;
  RingSender sender(shared.ring, small_ring, shared.receiver_bell);
  RingReceiver receiver(shared.ring, small_ring, shared.sender_bell);
  CHECK(!receiver.next_filled());
  for (uint64_t i = 0; i < small_ring.slots; ++i) {
    REQUIRE(sender.next_free());
    sender.put();
  }
  CHECK(!sender.next_free());
  REQUIRE(receiver.next_filled());
  receiver.release();
  CHECK(sender.next_free());
}

TEST_CASE("slots arrive in order between processes") {
  const TimeLimit limit;
  SharedRing shared;
  const pid_t pid = start_process([&] { send_numbers(shared, 5000); });
  CHECK(receive_numbers(shared, 5000) == 0);
  CHECK(wait_for_process(pid) == 0);
}

TEST_CASE("a notification wakes a sleeper, and the limit ends a sleep") {
  const TimeLimit limit;
  Doorbell bell;
  const uint32_t seen = bell.epoch();
  std::thread notifier([&] {
    usleep(50000);
    bell.notify();
  });
  const auto start = std::chrono::steady_clock::now();
  while (bell.epoch() == seen) bell.wait(seen, milliseconds(20000));
  CHECK(std::chrono::steady_clock::now() - start < milliseconds(10000));
  notifier.join();
  bell.wait(bell.epoch(), milliseconds(1));  // no notification: returns at the limit
}

}  // namespace
}  // namespace narrowcast::testing
