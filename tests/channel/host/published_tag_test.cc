// Tags that one rank stores while others read them.
#include <chrono>
#include <cstring>
#include <memory>
#include <stop_token>
#include <thread>

#include "channel/host/control_block.h"
#include "doctest/doctest.h"

namespace narrowcast::channel {
namespace {

TEST_CASE("readers of a published tag get one that was stored, and never a mix of two") {
  const auto published = std::make_unique<PublishedTag>();  // zeroed, as a segment
  Tag tag = {};
  CHECK_FALSE(published->load(&tag));
  const std::jthread writer([&](const std::stop_token& stop) {
    for (unsigned char value = 1; !stop.stop_requested(); ++value) {
      Tag stored;
      std::memset(stored.bytes, value, sizeof stored.bytes);
      published->store(stored);
    }
  });
  // Without a check that a store has begun meanwhile, some of these loads would return a mix.
  int loaded = 0, refused = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while ((loaded < 10000 || refused < 1000) && std::chrono::steady_clock::now() < deadline) {
    if (!published->load(&tag)) {
      ++refused;
      continue;
    }
    ++loaded;
    bool is_mix = false;
    for (const auto byte : tag.bytes) is_mix = is_mix || byte != tag.bytes[0];
    REQUIRE_FALSE(is_mix);
  }
}

}  // namespace
}  // namespace narrowcast::channel
