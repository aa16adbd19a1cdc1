// Ports without a GPU: threads post as kernels do, and what stands for the copy engines copies when the test says so.
#include <sched.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "../support/ranks.h"
#include "channel/port_proxy.h"
#include "status/error.h"

namespace narrowcast::testing {
namespace {

using namespace channel;

constexpr uint32_t ranks = 3, ports = 4, region_bytes = 4096;
constexpr uint32_t put = PortRequest::put, signal = PortRequest::signal, flush = PortRequest::flush;

// The kernel's end of the FIFO, in C++ for the host.
class Poster {
 public:
  explicit Poster(PortFifo& fifo) : fifo_(fifo) {}

  bool has_room(uint64_t ticket) const { return ticket - load(fifo_.taken) < PortFifo::slots; }
  uint64_t take_ticket() { return tickets_++; }
  uint64_t post(const PortRequest& request) {
    const uint64_t ticket = take_ticket();
    while (!has_room(ticket)) sched_yield();
    fill(ticket, request);
    return ticket;
  }
  // The halves in either order, as a store of both may arrive.
  void fill(uint64_t ticket, const PortRequest& request) {
    for (const int half : {static_cast<int>(ticket % 2), static_cast<int>(1 - ticket % 2)})
      fill_half(ticket, request, half);
  }
  void fill_half(uint64_t ticket, const PortRequest& request, int half) {
    const PortWords words = request.words(PortFifo::lap_of(ticket));
    __atomic_store_n(&fifo_.words[ticket % PortFifo::slots].half[half], words.half[half], __ATOMIC_RELEASE);
  }
  bool is_complete(uint32_t peer, uint64_t ticket) const { return load(fifo_.completed[peer]) > ticket; }
  void wait_until_complete(uint32_t peer, uint64_t ticket) const {
    while (!is_complete(peer, ticket)) sched_yield();
  }

 private:
  static uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

  PortFifo& fifo_;
  std::atomic<uint64_t> tickets_{0};
};

// Does what it is asked for when marks_reached() looks, as long as it may: `allowed` steps.
class FakeEngines final : public PortTransport {
 public:
  static constexpr uint64_t no_end = ~uint64_t{0};

  FakeEngines() : own(region_bytes), semaphores(size_t{ranks} * ports) {
    for (auto& memory : of_peer) memory.assign(region_bytes, 0xa5);
    for (size_t i = 0; i < own.size(); ++i) own[i] = static_cast<uint8_t>(i * 7 + i / 256);
  }

  ncast_status put(const PortRequest& request) override {
    ++puts;
    return later(request.peer, [this, request] {
      std::memcpy(&of_peer[request.peer][request.to.offset], &own[request.from.offset], request.bytes);
    });
  }
  ncast_status raise(uint32_t peer, uint32_t port, uint64_t count) override {
    ++raises;
    return later(peer, [this, peer, port, count] {
      __atomic_store_n(&semaphores[peer * ports + port], count, __ATOMIC_RELEASE);
    });
  }
  ncast_status mark(uint32_t peer) override {
    CHECK(++marks_made[peer] - marks[peer] <= most_marks);
    return later(peer, [this, peer] { ++marks[peer]; });
  }
  ncast_status marks_reached(uint32_t peer, uint64_t* reached) override {
    if (breaks) return fail(NCAST_CUDA_ERROR, "the link to rank %u fell out", peer);
    for (auto& work = work_[peer]; !work.empty() && allowed != 0; work.pop_front()) {
      if (allowed != no_end) --allowed;
      work.front()();
    }
    *reached = marks[peer];
    return NCAST_OK;
  }

  uint64_t count(uint32_t peer, uint32_t port) const {
    return __atomic_load_n(&semaphores[peer * ports + port], __ATOMIC_ACQUIRE);
  }

  std::vector<uint8_t> own, of_peer[ranks];
  std::vector<uint64_t> semaphores;
  std::atomic<uint64_t> allowed{no_end};
  std::atomic<bool> breaks{false};
  int puts = 0, raises = 0;
  uint64_t marks[ranks] = {}, marks_made[ranks] = {};

 private:
  ncast_status later(uint32_t peer, std::function<void()> step) {
    work_[peer].push_back(std::move(step));
    return NCAST_OK;
  }
  std::deque<std::function<void()>> work_[ranks];
};

struct Ports {
  explicit Ports(double timeout_seconds = 0)
      : poster(*fifo), service({0, ranks, ports, {region_bytes, 100}, {timeout_seconds}}, *fifo, engines) {}

  // Until nothing moves.
  ncast_status serve() {
    for (bool moved = true; moved;)
      if (ncast_status status = service.serve(&moved)) return status;
    return NCAST_OK;
  }
  bool is_refused(const PortRequest& request, const char* part) {
    poster.post(request);
    const int before = engines.puts + engines.raises;
    return serve() == NCAST_INVALID_ARGUMENT && std::string(ncast_last_error()).find(part) != std::string::npos &&
           engines.puts + engines.raises == before;
  }

  const std::unique_ptr<PortFifo> fifo = std::make_unique<PortFifo>();
  Poster poster;
  FakeEngines engines;
  PortService service;
};

PortRequest copy(uint32_t peer, uint64_t to, uint64_t from, uint32_t bytes, uint32_t more = 0, uint32_t port = 0) {
  return {put | more, peer, port, {0, to}, {0, from}, bytes};
}

TEST_CASE("a request comes out of its words as it went in") {
  const auto same = [](const PortRequest& a, const PortRequest& b) {
    return a.operations == b.operations && a.peer == b.peer && a.port == b.port && a.to.region == b.to.region &&
           a.to.offset == b.to.offset && a.from.region == b.from.region && a.from.offset == b.from.offset &&
           a.bytes == b.bytes;
  };
  const uint64_t far = PortRequest::reach_bytes - 1;
  const PortRequest requests[] = {{put, 0, 0, {0, 0}, {0, 0}, 0},
                                  {7, 63, 255, {31, far}, {31, far}, PortRequest::most_bytes},
                                  {signal, 7, 0, {0, 0}, {0, 0}, 0},
                                  {flush, 0, 254, {0, 0}, {0, 0}, 0},
                                  {put | signal, 5, 3, {30, 1}, {0, far - 1}, 1},
                                  {put, 1, 2, {0, far}, {30, 12345678901}, PortRequest::most_bytes - 1}};
  for (const PortRequest& request : requests) {
    for (const uint64_t lap : {0, 1}) {
      const PortWords words = request.words(lap);
      CHECK((words.half[0] & 1) == lap);
      CHECK((words.half[1] & 1) == lap);
      CHECK(same(PortRequest::of(words), request));
    }
  }
  // What does not fit does not become something else.
  const uint64_t most = ~uint64_t{0};
  const PortRequest large = {put, ~0u, ~0u, {~0u, most}, {~0u, most}, 1};
  CHECK(same(PortRequest::of(large.words(0)), {put, 63, 255, {31, far}, {31, far}, 1}));
}

TEST_CASE("a put copies its bytes, and no others") {
  Ports mine;
  for (const uint32_t bytes : {1u, 3u, 8u, 255u, 1000u}) {
    const uint64_t to = 17, from = 33;
    mine.engines.of_peer[1].assign(region_bytes, 0xa5);
    mine.poster.post(copy(1, to, from, bytes));
    REQUIRE(mine.serve() == NCAST_OK);
    std::vector<uint8_t> expected(region_bytes, 0xa5);
    std::memcpy(&expected[to], &mine.engines.own[from], bytes);
    CHECK(mine.engines.of_peer[1] == expected);
  }
  CHECK(mine.service.is_idle());
}

TEST_CASE("a signal is raised after the puts before it, and a flush completes after both") {
  Ports mine;
  mine.engines.allowed = 0;
  mine.poster.post(copy(2, 0, 0, 64));
  mine.poster.post(copy(2, 64, 64, 64, signal, 3));
  const uint64_t ticket = mine.poster.post({flush, 2, 0, {}, {}, 0});
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.count(2, 3) == 0);
  CHECK(!mine.poster.is_complete(2, ticket));
  CHECK(!mine.service.is_idle());
  mine.engines.allowed = 3;  // two puts and the signal
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(std::memcmp(mine.engines.of_peer[2].data(), mine.engines.own.data(), 128) == 0);
  CHECK(mine.engines.count(2, 3) == 1);
  CHECK(!mine.poster.is_complete(2, ticket));
  mine.engines.allowed = FakeEngines::no_end;
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.poster.is_complete(2, ticket));
  CHECK(mine.service.is_idle());
}

TEST_CASE("a flush completes for its own peer alone") {
  Ports mine;
  mine.engines.allowed = 0;
  const uint64_t first = mine.poster.post({flush, 1, 0, {}, {}, 0});
  mine.poster.post(copy(0, 0, 0, 8));
  const uint64_t second = mine.poster.post({flush, 0, 0, {}, {}, 0});
  REQUIRE(mine.serve() == NCAST_OK);
  mine.engines.allowed = 2;  // rank 0 is looked at first
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.poster.is_complete(0, second));
  CHECK(!mine.poster.is_complete(1, first));
  mine.engines.allowed = FakeEngines::no_end;
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.poster.is_complete(1, first));
  CHECK(!mine.poster.is_complete(1, second));
}

TEST_CASE("a request with one half missing is not taken, whichever half it is") {
  for (const int half : {0, 1}) {
    Ports mine;
    for (uint64_t ticket = 0; ticket < 2 * PortFifo::slots + 3; ++ticket) {
      const PortRequest request = copy(1, ticket, ticket, 1, signal);
      mine.poster.take_ticket();
      mine.poster.fill_half(ticket, request, half);
      REQUIRE(mine.serve() == NCAST_OK);
      REQUIRE(mine.engines.count(1, 0) == ticket);
      mine.poster.fill_half(ticket, request, 1 - half);
      REQUIRE(mine.serve() == NCAST_OK);
      REQUIRE(mine.engines.count(1, 0) == ticket + 1);
    }
  }
}

TEST_CASE("requests wait for one that has its ticket and is not there yet") {
  Ports mine;
  const uint64_t late = mine.poster.take_ticket();
  mine.poster.post({signal, 1, 0, {}, {}, 0});
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.raises == 0);
  mine.poster.fill(late, {signal, 1, 1, {}, {}, 0});
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.count(1, 0) == 1);
  CHECK(mine.engines.count(1, 1) == 1);
}

TEST_CASE("the FIFO has room for no more than its slots") {
  Ports mine;
  for (uint32_t i = 0; i < PortFifo::slots; ++i) mine.poster.post({signal, 1, 0, {}, {}, 0});
  const uint64_t ticket = mine.poster.take_ticket();
  CHECK(!mine.poster.has_room(ticket));
  mine.engines.allowed = 0;
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.raises == static_cast<int>(PortTransport::most_marks));  // the others stay where they are
  CHECK(mine.poster.has_room(ticket));
  mine.poster.fill(ticket, {flush, 1, 0, {}, {}, 0});
  mine.engines.allowed = FakeEngines::no_end;
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.count(1, 0) == PortFifo::slots);
  CHECK(mine.poster.is_complete(1, ticket));
}

TEST_CASE("a request that is out of bounds is refused, and nothing of it is begun") {
  const uint32_t all = region_bytes;
  const uint64_t far = ~uint64_t{0};
  CHECK(Ports().is_refused(copy(1, 1, 0, all), "puts 4096 bytes for rank 1 to offset 1 of region 0, which has 4096"));
  CHECK(Ports().is_refused(copy(2, 0, 1, all, signal), "puts 4096 bytes for rank 2 from offset 1 of region 0"));
  CHECK(Ports().is_refused(copy(1, all + 1, 0, 0), "to offset 4097"));
  CHECK(Ports().is_refused(copy(1, far, 0, 1), "to offset 68719476735"));
  CHECK(Ports().is_refused(copy(1, 0, far - 5, 6, flush), "from offset 68719476735"));
  CHECK(Ports().is_refused({put, 1, 0, {1, 1}, {0, 0}, 100}, "to offset 1 of region 1, which has 100"));
  CHECK(Ports().is_refused({put, 1, 0, {0, 0}, {2, 0}, 1}, "from region 2, and there are 2"));
  CHECK(Ports().is_refused({put, 1, 0, {~0u, 0}, {0, 0}, 1}, "to region 31"));
  CHECK(Ports().is_refused({signal, 3, 0, {}, {}, 0}, "a kernel of rank 0 names rank 3, and there are 3"));
  CHECK(Ports().is_refused({signal, 1, 4, {}, {}, 0}, "names port 4 to rank 1, and there are 4"));
  CHECK(Ports().is_refused({0, 1, 0, {}, {}, 0}, "for nothing"));

  Ports mine;  // at the edges, inside
  mine.poster.post(copy(1, 0, 0, all));
  mine.poster.post(copy(1, all, all, 0));
  mine.poster.post({put, 1, 0, {1, 99}, {1, 99}, 1});
  CHECK(mine.serve() == NCAST_OK);
}

TEST_CASE("what was asked for before a bad request is done, and nothing after it") {
  Ports mine;
  mine.poster.post(copy(1, 0, 0, 8));
  mine.poster.post(copy(1, region_bytes, 0, 8));
  mine.poster.post(copy(1, 8, 8, 8));
  CHECK(mine.serve() == NCAST_INVALID_ARGUMENT);
  CHECK(mine.engines.puts == 1);
}

TEST_CASE("puts that nobody asks about are looked after") {
  Ports mine(0.05);
  mine.engines.allowed = 0;
  mine.poster.post(copy(1, 0, 0, 8));
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(!mine.service.is_idle());
  usleep(100000);
  CHECK(mine.serve() == NCAST_TIMEOUT);
  CHECK(std::string(ncast_last_error()).find("kernels of rank 0 put for rank 1") != std::string::npos);
}

TEST_CASE("what moves slowly is not late") {
  Ports mine(0.4);
  mine.engines.allowed = 0;
  for (int i = 0; i < 10; ++i) mine.poster.post({signal, 1, 0, {}, {}, 0});
  for (int i = 0; i < 10; ++i) {
    usleep(100000);
    mine.engines.allowed = 2;
    REQUIRE(mine.serve() == NCAST_OK);
  }
  CHECK(mine.engines.count(1, 0) == 10);
}

// The thread's stop flag and its report of a failure.
struct Proxy {
  uint32_t stop = 0;
  std::atomic<int> reported{NCAST_OK};
  std::string sentence;  // before `reported`
  std::atomic<int> set_ups{0};
  PortProxy proxy{&stop, [this] { ++set_ups; },
                  [this](ncast_status status, const char* text) {
                    sentence = text;
                    reported = status;
                  }};

  void wait_for_report() const {
    while (reported == NCAST_OK) sched_yield();
  }
};

TEST_CASE("many threads post at once, and nothing is lost, doubled or out of its order") {
  const TimeLimit limit;
  constexpr uint32_t threads = 8, turns = 1000;  // the FIFO goes round many times
  Ports mine;
  Proxy thread;
  REQUIRE(thread.proxy.add(&mine.service) == NCAST_OK);
  std::atomic<uint32_t> wrong{0};
  std::vector<std::thread> posters;
  for (uint32_t poster = 0; poster < threads; ++poster) {
    posters.emplace_back([&, poster] {
      const uint32_t peer = poster % ranks, port = poster / ranks;  // of its own
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
  CHECK(mine.engines.raises == static_cast<int>(threads * turns));
}

TEST_CASE("a service is removed only when all is complete, and others go on") {
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

TEST_CASE("a failure is reported once with its sentence, and ends the thread") {
  const TimeLimit limit;
  Ports mine;
  Proxy thread;
  REQUIRE(thread.proxy.add(&mine.service) == NCAST_OK);
  mine.poster.post(copy(1, region_bytes, 0, 1));
  thread.wait_for_report();
  CHECK(thread.reported == NCAST_INVALID_ARGUMENT);
  CHECK(thread.sentence.find("to offset 4096 of region 0") != std::string::npos);
  CHECK(!thread.proxy.remove(&mine.service));
}

TEST_CASE("a failure of the transport is reported") {
  const TimeLimit limit;
  Ports mine;
  Proxy thread;
  REQUIRE(thread.proxy.add(&mine.service) == NCAST_OK);
  mine.engines.breaks = true;
  mine.poster.post({signal, 2, 0, {}, {}, 0});
  thread.wait_for_report();
  CHECK(thread.reported == NCAST_CUDA_ERROR);
  CHECK(thread.sentence == "the link to rank 2 fell out");
}

TEST_CASE("an abort ends the thread, whatever is under way, and whoever waits for it") {
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
  CHECK(thread.reported == NCAST_OK);  // it was told, and has nothing to tell
  CHECK(!thread.proxy.remove(&mine.service));
}

TEST_CASE("a request that comes after a pause is served, and so is a service that comes late") {
  const TimeLimit limit;
  Ports first, second;
  Proxy thread;
  REQUIRE(thread.proxy.add(&first.service) == NCAST_OK);
  usleep(20000);  // it naps by now
  first.poster.wait_until_complete(1, first.poster.post({flush, 1, 0, {}, {}, 0}));
  CHECK(thread.proxy.remove(&first.service));
  usleep(20000);  // it sleeps
  REQUIRE(thread.proxy.add(&second.service) == NCAST_OK);
  second.poster.wait_until_complete(1, second.poster.post({flush, 1, 0, {}, {}, 0}));
  CHECK(thread.proxy.remove(&second.service));
}

}  // namespace
}  // namespace narrowcast::testing
