#include "plan/simulate/calls.h"

#include <optional>

#include "doctest/doctest.h"
#include "plan/simulate/batches.h"
#include "plan/simulate/task_lists.h"
#include "predictions.h"

namespace narrowcast::plan::simulate {
namespace {

// Launches take 1 us and flights 2 us; messages of a megabyte take 10 us.
TEST_CASE("a rank ends a call when all others have announced it") {
  const Plan plan = reduction();  // ranks 0 and 1 only send
  const Machine machine = one_host();
  const Options options{.piece_bytes = million, .max_batches = 1, .repeats = true};
  const TaskLists task_lists(plan, machine, options, batches_of(plan, machine, options));
  Calls calls(plan, machine, task_lists, options.repeats);
  const auto end = [&](uint32_t rank, uint32_t call, double time) {
    calls.extend(rank, call, time);
    calls.end(rank);
  };
  const auto begin_of = [&](uint32_t rank) {
    const std::optional<Calls::Begin> next = calls.next();
    REQUIRE(next);
    CHECK(next->rank == rank);
    return next->time;
  };
  CHECK(!calls.next());
  end(0, 0, 2);  // the others begin at 1, and their announcements arrive at 3
  CHECK(begin_of(0) == 3 + 1);
  end(0, 1, 14);
  CHECK(!calls.next());  // the others have not begun the second call
  end(2, 0, 13);
  CHECK(begin_of(2) == 13 + 1);
  CHECK(!calls.next());
  end(1, 0, 13);
  CHECK(begin_of(1) == 13 + 1 + 1);  // the second rank that only sends begins later than the first
  CHECK(begin_of(0) == 15 + 2 + 1);
  CHECK(!calls.next());
  end(1, 1, 20);
  CHECK(begin_of(1) == 20 + 1);  // it is behind already
}

TEST_CASE("ranks that only send use the receiver's link while others begin a call") {
  const auto repeated_us = [](const Plan& plan) {
    return predict(plan, {.piece_bytes = million, .max_batches = 1, .repeats = true}, one_host()).repeated_us;
  };
  // In step they would take 20 us to send, 2 for the flight and 1 to begin the next call.
  CHECK(repeated_us(reduction()) == about(20 + 2 + 1 - 1));
  // A single sender cannot.
  CHECK(repeated_us(relay({0, 1})) == about(10 + 2 + 1));
}

}  // namespace
}  // namespace narrowcast::plan::simulate
