// Payloads that threads encode in any order come to lie end to end.
#include "store/build/payload_joiner.h"

#include <algorithm>
#include <numeric>

#include "codec/buffers.h"
#include "doctest/doctest.h"
#include "threads/parallel.h"

namespace narrowcast::tests {
namespace {

// The order of the tasks in which they are added.
std::vector<uint64_t> shuffled(uint64_t count, Random& random) {
  std::vector<uint64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (uint64_t i = count; i > 1; --i)
    std::swap(order[i - 1], order[static_cast<uint64_t>(random.below(static_cast<int>(i)))]);
  return order;
}

}  // namespace

TEST_CASE("payloads of tasks are joined in the order of the tasks, whichever ends first") {
  constexpr uint64_t tasks = 300, most_bytes = 500;
  Random random(1);
  store::PayloadJoiner joiner;
  for (const size_t threads : {1, 4}) {
    const std::vector<uint64_t> order = shuffled(tasks, random);
    std::vector<Bytes> payloads(tasks);
    Bytes expected;
    std::vector<uint64_t> begins, found(tasks, ~uint64_t{0});
    for (Bytes& payload : payloads) {
      payload.resize(static_cast<size_t>(random.below(most_bytes + 1)));  // some are empty
      for (uint8_t& byte : payload) byte = static_cast<uint8_t>(random.bits());
      begins.push_back(expected.size());
      expected.insert(expected.end(), payload.begin(), payload.end());
    }
    Guarded joined(expected.size());
    joiner.begin_piece(joined.data(), tasks, most_bytes);
    threads::Team team(threads);
    team.for_each_with(tasks, [&] {
      const auto placed = [&](uint64_t task, uint64_t begin) { found[task] = begin; };
      return [&, worker = store::PayloadJoiner::Worker(joiner, placed)](size_t item) mutable {
        const Bytes& payload = payloads[order[item]];
        std::copy(payload.begin(), payload.end(), worker.memory());
        worker.add(order[item], payload.size());
      };
    });
    CHECK(joiner.bytes() == expected.size());
    CHECK(joined.intact());
    CHECK(joined.copy(expected.size()) == expected);
    CHECK(found == begins);
  }
}

}  // namespace narrowcast::tests
