// The service executes requests from the FIFO in order and rejects invalid ones.
#include "parts.h"

namespace narrowcast::testing {
namespace {

TEST_CASE("decoding the words of a request yields the request") {
  const auto same = [](const PortRequest& a, const PortRequest& b) {
    return a.operations == b.operations && a.peer == b.peer && a.port == b.port && a.to.region == b.to.region &&
           a.to.offset == b.to.offset && a.from.region == b.from.region && a.from.offset == b.from.offset &&
           a.bytes == b.bytes;
  };
  const uint64_t far = PortRequest::offset_limit - 1;
  const PortRequest requests[] = {{put, 0, 0, {0, 0}, {0, 0}, 0},
                                  {7, 63, 255, {31, far}, {31, far}, PortRequest::max_put_bytes},
                                  {signal, 7, 0, {0, 0}, {0, 0}, 0},
                                  {flush, 0, 254, {0, 0}, {0, 0}, 0},
                                  {put | signal, 5, 3, {30, 1}, {0, far - 1}, 1},
                                  {put, 1, 2, {0, far}, {30, 12345678901}, PortRequest::max_put_bytes - 1}};
  for (const PortRequest& request : requests) {
    for (const uint64_t phase : {0, 1}) {
      const PortWords words = request.words(phase);
      CHECK((words.half[0] & 1) == phase);
      CHECK((words.half[1] & 1) == phase);
      CHECK(same(PortRequest::of(words), request));
    }
  }
  // Values that do not fit saturate to invalid values.
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
  mine.engines.allowed = 2;  // the service polls rank 0 first
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.poster.is_complete(0, second));
  CHECK(!mine.poster.is_complete(1, first));
  mine.engines.allowed = FakeEngines::no_end;
  bool progressed = false;
  REQUIRE(mine.service.serve(&progressed) == NCAST_OK);
  CHECK(progressed);  // otherwise the proxy would sleep
  CHECK(mine.poster.is_complete(1, first));
  CHECK(!mine.poster.is_complete(1, second));
}

TEST_CASE("a request is not consumed until both halves are written, in either order") {
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

TEST_CASE("requests wait for an earlier ticket whose request is not written yet") {
  Ports mine;
  const uint64_t late = mine.poster.take_ticket();
  mine.poster.post({signal, 1, 0, {}, {}, 0});
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.signals == 0);
  mine.poster.fill(late, {signal, 1, 1, {}, {}, 0});
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.count(1, 0) == 1);
  CHECK(mine.engines.count(1, 1) == 1);
}

TEST_CASE("the FIFO holds as many requests as it has slots") {
  Ports mine;
  for (uint32_t i = 0; i < PortFifo::slots; ++i) mine.poster.post({signal, 1, 0, {}, {}, 0});
  const uint64_t ticket = mine.poster.take_ticket();
  CHECK(!mine.poster.has_room(ticket));
  mine.engines.allowed = 0;
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.signals == static_cast<int>(PortTransport::max_open_markers));  // the others wait in the FIFO
  CHECK(mine.poster.has_room(ticket));
  mine.poster.fill(ticket, {flush, 1, 0, {}, {}, 0});
  mine.engines.allowed = FakeEngines::no_end;
  REQUIRE(mine.serve() == NCAST_OK);
  CHECK(mine.engines.count(1, 0) == PortFifo::slots);
  CHECK(mine.poster.is_complete(1, ticket));
}

TEST_CASE("a request that is out of bounds is rejected and not started") {
  const uint32_t all = region_bytes;
  const uint64_t far = ~uint64_t{0};
  CHECK(Ports().is_rejected(copy(1, 1, 0, all),
                            "put of 4096 bytes to rank 1, to offset 1 of region 0, which has 4096 bytes"));
  CHECK(Ports().is_rejected(copy(2, 0, 1, all, signal), "put of 4096 bytes to rank 2, from offset 1 of region 0"));
  CHECK(Ports().is_rejected(copy(1, all + 1, 0, 0), "to offset 4097"));
  CHECK(Ports().is_rejected(copy(1, far, 0, 1), "to offset 68719476735"));
  CHECK(Ports().is_rejected(copy(1, 0, far - 5, 6, flush), "from offset 68719476735"));
  CHECK(Ports().is_rejected({put, 1, 0, {1, 1}, {0, 0}, 100}, "to offset 1 of region 1, which has 100"));
  CHECK(Ports().is_rejected({put, 1, 0, {0, 0}, {2, 0}, 1}, "from region 2, but there are 2 regions"));
  CHECK(Ports().is_rejected({put, 1, 0, {~0u, 0}, {0, 0}, 1}, "to region 31"));
  CHECK(Ports().is_rejected({signal, 3, 0, {}, {}, 0}, "a kernel of rank 0 used rank 3, but there are 3 ranks"));
  CHECK(Ports().is_rejected({signal, 1, 4, {}, {}, 0}, "used port 4 to rank 1, but there are 4 ports"));
  CHECK(Ports().is_rejected({0, 1, 0, {}, {}, 0}, "without an operation"));

  Ports mine;  // requests that end at the bounds are valid
  mine.poster.post(copy(1, 0, 0, all));
  mine.poster.post(copy(1, all, all, 0));
  mine.poster.post({put, 1, 0, {1, 99}, {1, 99}, 1});
  CHECK(mine.serve() == NCAST_OK);
  CHECK(mine.engines.puts == 2);  // the one without bytes is not started
}

TEST_CASE("requests before an invalid one are executed, those after it are not") {
  Ports mine;
  mine.poster.post(copy(1, 0, 0, 8));
  mine.poster.post(copy(1, region_bytes, 0, 8));
  mine.poster.post(copy(1, 8, 8, 8));
  CHECK(mine.serve() == NCAST_INVALID_ARGUMENT);
  CHECK(mine.engines.puts == 1);
}

TEST_CASE("puts without a signal or flush can time out") {
  Ports mine(0.05);
  mine.engines.allowed = 0;
  mine.poster.post(copy(1, 0, 0, 8));
  bool progressed = false;
  REQUIRE(mine.service.serve(&progressed) == NCAST_OK);
  CHECK(!mine.service.is_idle());
  // Requests that follow do not extend the time.
  ncast_status status = NCAST_OK;
  for (int i = 0; i < 40 && status == NCAST_OK; ++i) {
    mine.poster.post({signal, 1, 0, {}, {}, 0});
    status = mine.serve();
    usleep(10000);
  }
  CHECK(status == NCAST_TIMEOUT);
  CHECK(std::string(ncast_last_error()).find("puts of rank 0 to rank 1") != std::string::npos);
}

TEST_CASE("slow progress does not time out") {
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

}  // namespace
}  // namespace narrowcast::testing
