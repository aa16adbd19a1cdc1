// The proxy thread serves all ports and ends on a failure or an abort.
#include "channel/port/proxy.h"

#include "parts.h"

namespace narrowcast::testing {
namespace {

// The thread's stop flag and its report of a failure.
struct Proxy {
  uint32_t stop = 0;
  std::atomic<int> reported{NCAST_OK};
  std::string message;  // written before `reported`
  std::atomic<int> set_ups{0};
  PortProxy proxy{&stop, [this] { ++set_ups; },
                  [this](ncast_status status, const char* text) {
                    message = text;
                    reported = status;
                    usleep(20000);  // a removal can be requested before the thread has ended
                  }};

  void wait_for_report() const {
    while (reported == NCAST_OK) sched_yield();
  }
};

TEST_CASE("requests of concurrent threads are neither lost, duplicated nor reordered") {
  const TimeLimit limit;
  constexpr uint32_t threads = 8, turns = 1000;  // the FIFO wraps around many times
  Ports mine;
  Proxy thread;
  REQUIRE(thread.proxy.add(&mine.service) == NCAST_OK);
  std::atomic<uint32_t> wrong{0};
  std::vector<std::thread> posters;
  for (uint32_t poster = 0; poster < threads; ++poster) {
    posters.emplace_back([&, poster] {
      const uint32_t peer = poster % ranks, port = poster / ranks;  // unique to this thread
      const uint64_t at = uint64_t{poster} * 16;
      for (uint32_t turn = 1; turn <= turns; ++turn) {
        std::memcpy(&mine.engines.own[at], &turn, sizeof turn);
        mine.poster.post(copy(peer, at, at, sizeof turn, signal, port));
        mine.poster.wait_until_complete(peer, mine.poster.post({flush, peer, port, {}, {}, 0}));
        uint32_t got = 0;
        std::memcpy(&got, &mine.engines.of_peer[peer][at], sizeof got);
        wrong += got != turn || mine.engines.count(peer, port) != turn;
      }
    });
  }
  for (std::thread& poster : posters) poster.join();
  CHECK(wrong == 0);
  CHECK(thread.proxy.remove(&mine.service));
  CHECK(mine.service.is_idle());
  CHECK(thread.set_ups == 1);
  CHECK(mine.engines.signals == static_cast<int>(threads * turns));
}

TEST_CASE("removing a service waits for its requests while other services continue") {
  const TimeLimit limit;
  Ports first, second;
  Proxy thread;
  REQUIRE(thread.proxy.add(&first.service) == NCAST_OK);
  REQUIRE(thread.proxy.add(&second.service) == NCAST_OK);
  first.engines.allowed = 0;
  for (int i = 0; i < 300; ++i) first.poster.post(copy(1, 0, 0, 8, signal));
  std::atomic<bool> is_removed{false};
  std::thread remover([&] {
    CHECK(thread.proxy.remove(&first.service));
    is_removed = true;
  });
  second.poster.wait_until_complete(0, second.poster.post({flush, 0, 0, {}, {}, 0}));
  CHECK(!is_removed);
  first.engines.allowed = FakeEngines::no_end;
  remover.join();
  CHECK(first.engines.count(1, 0) == 300);
  second.poster.wait_until_complete(0, second.poster.post({flush, 0, 0, {}, {}, 0}));
  CHECK(thread.proxy.remove(&second.service));
}

TEST_CASE("a failure is reported with its message and ends the thread") {
  const TimeLimit limit;
  Ports mine;
  Proxy thread;
  REQUIRE(thread.proxy.add(&mine.service) == NCAST_OK);
  mine.poster.post(copy(1, region_bytes, 0, 1));
  thread.wait_for_report();
  CHECK(thread.reported == NCAST_INVALID_ARGUMENT);
  CHECK(thread.message.find("to offset 4096 of region 0") != std::string::npos);
  CHECK(!thread.proxy.remove(&mine.service));
}

TEST_CASE("a failure of the transport is reported, and ends the removal of a service") {
  const TimeLimit limit;
  Ports mine;
  Proxy thread;
  REQUIRE(thread.proxy.add(&mine.service) == NCAST_OK);
  mine.engines.fails = true;
  mine.poster.post({signal, 2, 0, {}, {}, 0});
  thread.wait_for_report();
  CHECK(thread.reported == NCAST_CUDA_ERROR);
  CHECK(thread.message == "the link to rank 2 failed");
  CHECK(!thread.proxy.remove(&mine.service));
}

TEST_CASE("an abort ends the thread and callers that wait for it, even with requests in flight") {
  const TimeLimit limit;
  Ports mine;
  Proxy thread;
  REQUIRE(thread.proxy.add(&mine.service) == NCAST_OK);
  mine.engines.allowed = 0;
  const uint64_t ticket = mine.poster.post({flush, 1, 0, {}, {}, 0});
  std::thread aborter([&] {
    usleep(50000);
    __atomic_store_n(&thread.stop, 1u, __ATOMIC_RELEASE);
  });
  CHECK(!thread.proxy.remove(&mine.service));
  aborter.join();
  CHECK(!mine.poster.is_complete(1, ticket));
  CHECK(thread.reported == NCAST_OK);  // an abort is not a failure of the proxy
  CHECK(!thread.proxy.remove(&mine.service));
}

TEST_CASE("the thread wakes up for a request after a pause and for a new service") {
  const TimeLimit limit;
  Ports first, second;
  Proxy thread;
  REQUIRE(thread.proxy.add(&first.service) == NCAST_OK);
  usleep(20000);  // now the thread polls with short sleeps
  first.poster.wait_until_complete(1, first.poster.post({flush, 1, 0, {}, {}, 0}));
  CHECK(thread.proxy.remove(&first.service));
  usleep(20000);  // now the thread sleeps, because it has no service
  REQUIRE(thread.proxy.add(&second.service) == NCAST_OK);
  second.poster.wait_until_complete(1, second.poster.post({flush, 1, 0, {}, {}, 0}));
  CHECK(thread.proxy.remove(&second.service));
}

}  // namespace
}  // namespace narrowcast::testing
