// What streams over every network do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "stream_pair.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {

// Messages of many sizes, in several parts.
inline void for_each_message(uint32_t seed, const std::function<void(std::vector<std::vector<char>>& parts)>& body) {
  std::mt19937 random(seed);
  for (int message = 0; message < 60; ++message) {
    std::vector<std::vector<char>> parts(1 + random() % 3);
    for (std::vector<char>& part : parts) {
      part.resize(message % 10 == 9 ? random() % 3'000'000 : random() % 5'000);
      std::ranges::generate(part, [&] { return static_cast<char>(random()); });
    }
    body(parts);
  }
}

inline void send_messages(channel::Stream& stream, uint32_t seed) {
  for_each_message(seed, [&](std::vector<std::vector<char>>& parts) {
    std::vector<iovec> sent;
    for (std::vector<char>& part : parts) sent.push_back({part.data(), part.size()});
    EXPECT(stream.send(sent) == 0);
  });
}

inline void check_messages(channel::Stream& stream, uint32_t seed) {
  for_each_message(seed, [&](std::vector<std::vector<char>>& parts) {
    for (const std::vector<char>& part : parts) {
      std::vector<char> found(part.size());
      EXPECT(stream.receive_all(found.data(), found.size()) == 0);
      EXPECT(found == part);
    }
  });
}

inline void exchange_messages() {
  const StreamPair pair;
  const std::function<void()> bodies[] = {
      [&] { send_messages(*pair.first, 1); }, [&] { check_messages(*pair.first, 2); },
      [&] { send_messages(*pair.second, 2); }, [&] { check_messages(*pair.second, 1); }};
  run_threads(4, [&](int thread) { bodies[thread](); });
}

inline void send_before_the_end() {
  StreamPair pair;
  // Longer messages may be sent only while they are received.
  std::vector<char> sent(4'000, 's'), found(sent.size());
  iovec part = {sent.data(), sent.size()};
  EXPECT(pair.first->send({&part, 1}) == 0);
  pair.first.reset();
  EXPECT(pair.second->receive_all(found.data(), found.size()) == 0);
  EXPECT(found == sent);
  EXPECT(pair.second->receive_all(found.data(), 1) == channel::Stream::closed);
}

inline void connect_without_the_secret() {
  const StreamPair pair(bootstrap::WorldId{1});
  EXPECT(pair.failure == NCAST_CORRUPT);
  EXPECT(error_contains("what it sent is not valid"));
}

}  // namespace narrowcast::testing
