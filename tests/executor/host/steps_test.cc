// What steps store: destinations with codecs of their own, and those that are shorter than the values.
#include <algorithm>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/codec.h"
#include "narrowcast/plan.h"
#include "plan/handle.h"
#include "support/plans.h"
#include "support/ranks.h"
#include "support/values.h"

namespace narrowcast::testing {
namespace {

using namespace plan::verify::testing;
using plan::Operand;
using plan::Plan;

constexpr uint64_t elems = 5001;
constexpr int behind = 16;  // values behind an output, which stay as they are

Operand with_codec(Operand operand, ncast_codec codec) {
  operand.codec = codec;
  return operand;
}

// What a receiver of a message with this codec finds.
std::vector<float> delivered(const std::vector<float>& values, ncast_codec codec) {
  std::vector<unsigned char> frame(ncast_bound(NCAST_FLOAT32, codec, values.size()));
  size_t bytes = 0;
  EXPECT_OK(ncast_encode(values.data(), NCAST_FLOAT32, values.size(), codec, 0, frame.data(), frame.size(), &bytes));
  std::vector<float> found(values.size());
  EXPECT_OK(ncast_decode(frame.data(), bytes, 0, found.data(), found.size() * sizeof(float), nullptr));
  return found;
}

std::vector<float> some_values() {
  std::vector<float> values(elems);
  for (size_t i = 0; i < elems; ++i) values[i] = static_cast<float>(i * i % 977) / 31;
  return values;
}

std::vector<float> doubled(std::vector<float> values) {
  for (float& value : values) value *= 2;
  return values;
}

// Runs a plan twice, with the same values on all ranks. outputs: of the ranks.
void check_outputs(const Plan& plan, const std::vector<float>& values, const std::vector<std::vector<float>>& outputs,
                   Settings settings = {}, bool in_place = false) {
  const ncast_plan handle{plan};
  const ncast_unique_id id = new_id();
  run_threads(plan.rank_count(), [&](int rank) {
    const Comm comm(id, rank, plan.rank_count(), settings);
    ncast_loaded_plan* loaded = nullptr;
    EXPECT_OK(ncast_plan_load(comm, &handle, NCAST_FLOAT32, NCAST_SUM, &loaded));
    for (int call = 0; call < 2; ++call) {
      std::vector<float> found = in_place ? values : std::vector<float>(elems, -1);
      found.resize(elems + behind, -1);
      EXPECT_OK(ncast_loaded_plan_run(loaded, in_place ? found.data() : values.data(), found.data(), elems, nullptr));
      EXPECT(std::all_of(found.end() - behind, found.end(), [](float value) { return value == -1; }));
      found.resize(elems);
      EXPECT(found == outputs[static_cast<size_t>(rank)]);
    }
    EXPECT_OK(ncast_loaded_plan_destroy(loaded));
  });
}

TEST_CASE("each destination of a step receives the values as its own codec delivers them") {
  const ncast_codec window = NCAST_CODEC_WINDOW, fine = NCAST_CODEC_INT8, coarse = NCAST_CODEC_INT4;
  // Rank 0 sends to ranks 1 and 4, and rank 1 passes the values on to rank 2 as a message, and to rank 3 as packets.
  Plan plan = empty_plan(operation::Operation::broadcast, 5);
  const uint32_t to_1 = add_ring(plan, 0, 1), to_4 = add_ring(plan, 0, 4), to_2 = add_ring(plan, 1, 2);
  const uint32_t to_3 = add_memory(plan, 1, 3), from_3 = add_memory(plan, 3, 1);
  plan.ranks[3].scratch_chunks = 1;
  const Operand parked = with_codec(packets(scratch(0)), fine);
  add(plan, 0, copy(input(0), {with_codec(output(0), coarse), message(to_1, window), message(to_4, coarse)}));
  add(plan, 1, copy(message(to_1, window), {output(0), message(to_2, fine), remote(parked, to_3)}));
  add(plan, 1, wait({from_3}));  // before the next call overwrites the packets
  add(plan, 2, copy(message(to_2, fine), {output(0)}));
  add(plan, 3, copy(parked, {output(0)}));
  add(plan, 3, signal({from_3}));
  add(plan, 4, copy(message(to_4, coarse), {output(0)}));

  const std::vector<float> values = some_values();
  const std::vector<float> finely = delivered(values, fine), coarsely = delivered(values, coarse);
  REQUIRE(finely != values);
  REQUIRE(finely != coarsely);
  check_outputs(plan, values, {coarsely, values, finely, finely, coarsely});
}

TEST_CASE("a step in place rounds its values for each destination separately") {
  const ncast_codec fine = NCAST_CODEC_INT8, coarse = NCAST_CODEC_INT4;
  Plan plan = empty_plan(operation::Operation::broadcast, 3);
  const uint32_t to_1 = add_ring(plan, 0, 1), to_2 = add_ring(plan, 0, 2);
  add(plan, 0, copy(input(0), {with_codec(output(0), coarse), message(to_1, coarse), message(to_2, fine)}));
  add(plan, 1, copy(message(to_1, coarse), {output(0)}));
  add(plan, 2, copy(message(to_2, fine), {output(0)}));
  const std::vector<float> values = some_values(), coarsely = delivered(values, coarse);
  check_outputs(plan, values, {coarsely, coarsely, delivered(values, fine)}, {}, true);
}

TEST_CASE("a reduction is rounded only for the destinations whose codec rounds") {
  const ncast_codec coarse = NCAST_CODEC_INT4;
  Plan plan = empty_plan(operation::Operation::all_reduce, 2);
  const uint32_t there = add_ring(plan, 1, 0), back = add_ring(plan, 0, 1);
  add(plan, 0, reduce({input(0), message(there)}, {with_codec(output(0), coarse), message(back)}));
  add(plan, 1, copy(input(0), {message(there)}));
  add(plan, 1, copy(message(back), {output(0)}));
  const std::vector<float> values = some_values(), sums = doubled(values);
  REQUIRE(delivered(sums, coarse) != sums);
  check_outputs(plan, values, {delivered(sums, coarse), sums});
}

// Reduces two whole chunks in scratch to an output whose second chunk is shorter.
Plan reduction_in_scratch(ncast_codec codec) {
  Plan plan = empty_plan(operation::Operation::all_reduce, 2, 2);
  const uint32_t rings[] = {add_ring(plan, 0, 1), add_ring(plan, 1, 0)};
  for (const int rank : {0, 1}) {
    plan.ranks[static_cast<size_t>(rank)].scratch_chunks = 4;
    add(plan, rank, copy(input(0), {scratch(2 * static_cast<uint32_t>(rank)), message(rings[rank])}, 2));
    add(plan, rank, copy(message(rings[1 - rank]), {scratch(2 * static_cast<uint32_t>(1 - rank))}, 2));
    add(plan, rank, reduce({scratch(0), scratch(2)}, {with_codec(output(0), codec)}, 2));
  }
  return plan;
}

TEST_CASE("a reduction of whole chunks ends where a short output ends, in parts that the scratch has room for") {
  Plan plan = reduction_in_scratch(NCAST_CODEC_RAW);
  const std::vector<float> sums = doubled(some_values());
  check_outputs(plan, some_values(), {sums, sums});
  // Scratch of so many chunks has room for shorter parts than rings have.
  for (plan::Rank& rank : plan.ranks) rank.scratch_chunks = 20'000;
  check_outputs(plan, some_values(), {sums, sums}, {.scratch_bytes = 64 << 10});
}

// The same for two chunks, of which scratch has all of the second one.
std::vector<float> delivered_in_chunks(std::vector<float> values, ncast_codec codec) {
  constexpr std::ptrdiff_t chunk = 2504;  // a multiple of 16 bytes
  values.resize(2 * chunk);               // scratch begins as zeros
  std::vector<float> found = delivered({values.begin(), values.begin() + chunk}, codec);
  const std::vector<float> second = delivered({values.begin() + chunk, values.end()}, codec);
  found.insert(found.end(), second.begin(), second.end());
  found.resize(elems);
  return found;
}

TEST_CASE("a rounded reduction ends where a short output ends") {
  const ncast_codec coarse = NCAST_CODEC_INT4;
  const std::vector<float> expected = delivered_in_chunks(doubled(some_values()), coarse);
  check_outputs(reduction_in_scratch(coarse), some_values(), {expected, expected});
}

TEST_CASE("a copy that is rounded for a short output is not rounded for messages") {
  const ncast_codec fine = NCAST_CODEC_INT8, coarse = NCAST_CODEC_INT4;
  Plan plan = empty_plan(operation::Operation::broadcast, 3, 2);
  const uint32_t to_1 = add_ring(plan, 0, 1), to_2 = add_ring(plan, 1, 2);
  plan.ranks[0].scratch_chunks = 2;
  add(plan, 0, copy(input(0), {scratch(0)}, 2));
  add(plan, 0, copy(scratch(0), {with_codec(output(0), coarse), message(to_1, NCAST_CODEC_WINDOW)}, 2));
  add(plan, 1, copy(message(to_1, NCAST_CODEC_WINDOW), {with_codec(output(0), coarse), message(to_2, fine)}, 2));
  add(plan, 2, copy(message(to_2, fine), {output(0)}, 2));
  const std::vector<float> values = some_values(), coarsely = delivered_in_chunks(values, coarse);
  check_outputs(plan, values, {coarsely, coarsely, delivered_in_chunks(values, fine)});
}

}  // namespace
}  // namespace narrowcast::testing
