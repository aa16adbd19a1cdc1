#include "plan/simulate/simulate.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/budget.h"
#include "plan/simulate/batches.h"
#include "predictions.h"

namespace narrowcast::plan::simulate {
namespace {

TEST_CASE("a message takes its bytes over the link's rate, a flight and the launch") {
  const Prediction prediction = predict(relay({0, 1}), {.piece_bytes = million, .max_batches = 1});
  CHECK(prediction.microseconds == about(10 + 2 + 1));
  CHECK(prediction.sent_bytes == std::vector<double>{double{million}, 0});
}

TEST_CASE("encoded messages send fewer bytes, and packets have a lower rate") {
  const Options options{.piece_bytes = million, .ratio = 0.5, .max_batches = 1};
  CHECK(microseconds_of(relay({0, 1}, false, NCAST_CODEC_WINDOW), options) == about(5 + 2 + 1));
  CHECK(microseconds_of(relay({0, 1}, true), options) == about(20 + 2 + 1));
}

TEST_CASE("packets can have a latency of their own") {
  const Machine machine =
      machine_with({{"\"link_latency_us\": 2", "\"link_latency_us\": 2, \"link_packets_latency_us\": 1"}});
  const Options options{.piece_bytes = million, .max_batches = 1};
  CHECK(microseconds_of(relay({0, 1}), options, machine) == about(10 + 2 + 1));
  CHECK(microseconds_of(relay({0, 1}, true), options, machine) == about(20 + 1 + 1));
}

TEST_CASE("ranks of different hosts use the network") {
  CHECK(microseconds_of(relay({0, 2, 1}), {.piece_bytes = million, .max_batches = 1}) == about(2 * (100 + 5) + 1));
}

TEST_CASE("micro-batches make a pipeline of the hops") {
  const Prediction whole = predict(relay({0, 2, 1}), {.piece_bytes = 10 * million, .max_batches = 1});
  const Prediction pipelined = predict(relay({0, 2, 1}), {.piece_bytes = 10 * million, .max_batches = 10});
  CHECK(pipelined.batches == 10);
  CHECK(whole.microseconds == about(2011));
  // 10 parts of 100 us over the first hop, and the last part over the second one.
  CHECK(pipelined.microseconds == doctest::Approx(1000 + 5 + 100 + 5 + 1).epsilon(0.01));
}

TEST_CASE("a simulation ends at a limit of operations or memory, which its timeline needs too") {
  Prediction prediction;
  Options options = {.piece_bytes = 1000 * million, .max_batches = 1000};
  const auto simulate_many = [&] { return simulate(relay({0, 2, 1}), machine_of(machine_text), options, &prediction); };
  {
    const Budget budget(1000);
    CHECK(within_budget(simulate_many) == NCAST_UNSUPPORTED);
    CHECK(std::string(ncast_last_error()) == "the plan is too large: it takes more than 1000 operations");
  }
  const Budget budget(max_work, 100 << 10);
  CHECK(within_budget(simulate_many) == NCAST_OK);
  options.records_timeline = true;
  CHECK(within_budget(simulate_many) == NCAST_UNSUPPORTED);
  CHECK(std::string_view(ncast_last_error()).ends_with("MiB of memory"));
}

TEST_CASE("messages that wait for a full ring do not delay earlier ones") {
  // With many micro-batches, sends that follow each other are one transfer.
  Plan plan = empty_plan(Operation::broadcast, 2, 3);
  const uint32_t ring = add_ring(plan, 0, 1, 2);
  for (uint32_t i = 0; i < 3; ++i) {
    add(plan, 0, copy(input(i), {message(ring)}));
    add(plan, 1, copy(message(ring), {output(i)}));
  }
  const Prediction prediction = predict(plan, {.piece_bytes = 30 * million, .max_batches = 32});
  CHECK(prediction.batches == 32);
  CHECK(prediction.microseconds == doctest::Approx(300 + 2 + 1).epsilon(0.05));
}

TEST_CASE("sends that wait for another group do not delay messages that its peer waits for") {
  // Rank 0 sends its chunk, and sends rank 1's chunk back after another group has received it: which rank 1 sends when
  // it has rank 0's.
  Plan plan = empty_plan(Operation::all_gather, 2);
  const uint32_t there = add_ring(plan, 0, 1, 2), back = add_ring(plan, 1, 0, 2);
  plan.ranks[0].groups.resize(2);
  add(plan, 0, copy(input(0), {message(there)}));
  add(plan, 0, after(copy(output(1), {message(there)}), {{1, 0}}));
  add(plan, 0, copy(message(back), {output(1)}), 1);
  add(plan, 0, copy(input(0), {output(0)}), 1);
  add(plan, 1, copy(message(there), {output(0)}));
  add(plan, 1, copy(input(0), {message(back)}));
  add(plan, 1, copy(message(there), {output(1)}));
  const Prediction prediction = predict(plan, {.piece_bytes = 16 * million, .max_batches = 32});
  CHECK(prediction.batches == 32);
}

TEST_CASE("a micro-batch is what some warps of each CTA have in flight, or more in plans of many steps") {
  Plan two_groups = empty_plan(Operation::broadcast, 3);
  two_groups.ranks[0].groups.resize(2);
  for (const int to : {1, 2}) {
    const uint32_t ring = add_ring(two_groups, 0, to);
    add(two_groups, 0, copy(input(0), {message(ring)}), ring);
    add(two_groups, to, copy(message(ring), {output(0)}));
  }
  CHECK(predict(two_groups, {.piece_bytes = million}).batches == 12);  // each has half of the warps
  two_groups.ranks[0].groups[0].steps.resize(25'000, copy(input(0), {output(0)}));
  CHECK(batches_of(two_groups, machine_of(machine_text), {.piece_bytes = 100 * million}).count == 9);
  CHECK(predict(relay({0, 1}), {.piece_bytes = million}).batches == 6);           // 16 KiB of each of 10 CTAs
  CHECK(predict(relay({0, 1}, true), {.piece_bytes = 10 * 8192}).batches == 10);  // at least 8 KiB
  CHECK(predict(relay({0, 1}, true), {.piece_bytes = million}).batches == 32);
}

TEST_CASE("sends of the warps of a group use a link in order") {
  // Results, which are sent when the first parts of the other rank have arrived, do not overtake the last parts.
  const Plan plan = reduction_in_turns(2, true);
  const Machine machine = one_host({{"\"ctas\": 10", "\"ctas\": 64"}});
  for (const uint32_t batches : {4u, 8u, 16u, 32u})
    CHECK(microseconds_of(plan, {.piece_bytes = million / 2, .max_batches = batches}, machine) == about(10 + 2 + 1));
}

TEST_CASE("every micro-batch ends after the latencies of its operands, and others do not wait for it") {
  const Machine machine = machine_with({{"\"slot_latency_us\": 0", "\"slot_latency_us\": 7"}});
  for (const uint32_t batches : {1u, 4u, 10u}) {
    const Options options{.piece_bytes = 10 * million, .max_batches = batches};
    CHECK(microseconds_of(relay({0, 1}), options, machine) == about(100 + 7 + 2 + 7 + 1));
    CHECK(microseconds_of(relay({0, 1}, true), options, machine) == about(200 + 2 + 1));
  }
}

TEST_CASE("the other micro-batches of a long call take as long as those that are simulated") {
  for (const std::vector<int>& path : {std::vector{0, 1}, std::vector{0, 2, 1}}) {
    const uint64_t bytes = 100 * million;
    const Prediction some = predict(relay(path), {.piece_bytes = bytes, .extrapolates = true});
    const Prediction all = predict(relay(path), {.piece_bytes = bytes, .max_batches = 610});
    CHECK(some.batches == 32);
    CHECK(all.batches == 610);
    CHECK(some.microseconds == about(all.microseconds));
    CHECK(some.sent_bytes == all.sent_bytes);
  }
}

TEST_CASE("in successive calls, a rank begins the next one when it has ended its part") {
  const Prediction prediction = predict(relay({0, 2, 1}), {.piece_bytes = million, .max_batches = 1, .repeats = true});
  CHECK(prediction.microseconds == about(2 * (100 + 5) + 1));
  CHECK(prediction.repeated_us == about(100 + 5 + 1));  // rank 0, and every other one
}

TEST_CASE("responses use the other direction of a link") {
  const Machine machine =
      machine_with({{"\"link_packets_gbps\"", "\"link_response_share\": 0.25, \"link_packets_gbps\""}});
  const Options options{.piece_bytes = million, .max_batches = 1};
  CHECK(microseconds_of(relay({0, 1}), options, machine) == about(10 + 2 + 1));
  Plan exchange = empty_plan(Operation::all_gather, 2, 1, 2);
  for (const int rank : {0, 1}) {
    const uint32_t ring = add_ring(exchange, rank, 1 - rank, 1);
    add(exchange, rank, copy(input(0), {message(ring)}), 0);
    add(exchange, 1 - rank, copy(message(ring), {output(ring)}), 1);
  }
  CHECK(microseconds_of(exchange, options, machine) == about(12.5 + 2 + 1));
}

TEST_CASE("successive messages of a group use all links equally if there are many micro-batches") {
  // Ranks 0 and 1 send to rank 2 first, then to rank 3: one after another they would share the link of rank 2.
  Plan plan = empty_plan(Operation::all_gather, 4);
  for (const int from : {0, 1})
    for (const int to : {2, 3}) {
      const uint32_t ring = add_ring(plan, from, to, 4);
      add(plan, from, copy(input(0), {message(ring)}));
      add(plan, to, copy(message(ring), {output(static_cast<uint32_t>(from))}));
    }
  CHECK(microseconds_of(plan, {.piece_bytes = 10 * million}, one_host()) == about(200 + 2 + 1));
}

TEST_CASE("a group continues while its stores are in flight, but not in a single micro-batch") {
  Plan plan = empty_plan(Operation::broadcast, 2);
  const uint32_t ring = add_ring(plan, 0, 1, 2);
  add(plan, 0, copy(input(0), {message(ring)}));
  for (int i = 0; i < 3; ++i) add(plan, 0, copy(input(0), {output(0)}));
  add(plan, 1, copy(message(ring), {output(0)}));
  // The CTAs take 10 us for each step, and the link as long.
  const Machine machine = machine_with({{"\"cta_move_gbps\": 1e9", "\"cta_move_gbps\": 20.0"}});
  const auto us = [&](uint32_t batches) {
    return microseconds_of(plan, {.piece_bytes = million, .max_batches = batches}, machine);
  };
  CHECK(us(1) == about(1 + 10 + 10 + 3 * 10));
  CHECK(us(2) == about(1 + 10 + 3 * 10));
}

TEST_CASE("forwarded payloads are not encoded again") {
  const Machine machine = machine_with({{"\"coded_latency_us\": 0", "\"coded_latency_us\": 7"}});
  const Options options{.piece_bytes = million, .ratio = 1e-6, .max_batches = 1};
  // The root encodes, and the others decode.
  CHECK(microseconds_of(relay({0, 1}, false, NCAST_CODEC_WINDOW), options, machine) == about(7 + 2 + 7 + 1));
  CHECK(microseconds_of(relay({0, 2, 1}, false, NCAST_CODEC_WINDOW), options, machine) == about(7 + 5 + 7 + 5 + 7 + 1));
}

TEST_CASE("plans with reductions have their own rates of codecs, and latencies for every source") {
  const Plan plan = reduction();
  const Options options{.piece_bytes = million, .ratio = 1e-6, .max_batches = 1};
  const auto us = [&](const std::string& old, const std::string& by) {
    return microseconds_of(plan, options, one_host({{old, by}}));
  };
  CHECK(us("\"ctas\": 10", "\"ctas\": 10") == about(2 + 1));
  CHECK(us("\"coded_latency_us\": 0", "\"coded_latency_us\": 7") == about(3 * 7 + 2 + 1));
  CHECK(us("\"slot_latency_us\": 0", "\"slot_latency_us\": 7") == about(3 * 7 + 2 + 1));
  CHECK(us("\"step_us\": 0", "\"step_us\": 0, \"reduce_latency_us\": 7") == about(7 + 2 + 1));
  CHECK(us("\"step_us\": 0", "\"step_us\": 0, \"slots_launch_us\": 7") == about(7 + 2 + 1));
  // 1 MB / (10 CTAs * half of 2 GB/s)
  CHECK(us("\"cta_encode_gbps\": 1e9", "\"reducing_codec_share\": 0.5, \"cta_encode_gbps\": 2") == about(100 + 2 + 1));
}

TEST_CASE("transfers share a link, and a full ring makes the sender wait") {
  // Two groups of rank 0 send to rank 1, which receives the second message only after the first.
  Plan plan = empty_plan(Operation::all_gather, 2);
  plan.ranks[0].groups.resize(2);
  for (const uint32_t group : {0, 1}) {
    const uint32_t ring = add_ring(plan, 0, 1, 1);
    add(plan, 0, copy(input(0), {message(ring)}), group);
    add(plan, 1, copy(message(ring), {output(0)}));
  }
  const Prediction prediction = predict(plan, {.piece_bytes = million, .max_batches = 1, .records_timeline = true});
  CHECK(prediction.microseconds == about(20 + 2 + 1));
  REQUIRE(prediction.groups.size() == 3);
  CHECK(prediction.groups[0].busy_us == about(20));
  CHECK(prediction.timeline.size() == 4);
}

TEST_CASE("the sharing of links does not depend on the numbering of ranks") {
  // Rank `three` sends a megabyte to each of three ranks. Each gets a third of its link, and leaves two thirds of the
  // first one's link to rank `one`, which sends it four megabytes.
  for (const auto& [three, one] : {std::pair(0, 4), std::pair(4, 0)}) {
    CAPTURE(three);
    Plan plan = empty_plan(Operation::all_gather, 5, 4, 0);
    const auto send = [&](int from, int to, uint32_t count) {
      const uint32_t ring = add_ring(plan, from, to, 1);
      plan.ranks[static_cast<size_t>(from)].groups.push_back({{copy(input(0), {message(ring)}, count)}});
      plan.ranks[static_cast<size_t>(to)].groups.push_back({{copy(message(ring), {output(0)}, count)}});
    };
    for (const int to : {1, 2, 3}) send(three, to, 1);
    send(one, 1, 4);
    Machine machine = one_host();
    machine.gpus_per_host = 5;
    CHECK(microseconds_of(plan, {.piece_bytes = 4 * million, .max_batches = 1}, machine) == about(30 + 20 + 2 + 1));
  }
}

TEST_CASE("the CTAs of a group limit its rate before the transfer") {
  const Machine machine = machine_with({{"\"cta_move_gbps\": 1e9", "\"cta_move_gbps\": 2.0"}});
  // A load and two stores for the sender, a load and a store for the receiver: 1 MB / (10 CTAs * 2 GB/s) for each.
  CHECK(microseconds_of(relay({0, 1}), {.piece_bytes = million, .max_batches = 1}, machine) ==
        about(150 + 10 + 2 + 100 + 1));
  CHECK(microseconds_of(relay({0, 1}), {.piece_bytes = million, .max_batches = 1, .ctas_per_group = 5}, machine) ==
        about(300 + 10 + 2 + 200 + 1));
}

TEST_CASE("groups wait for semaphores, barriers and dependences") {
  Plan plan = empty_plan(Operation::all_gather, 2, 1, 2);
  const uint32_t channel = add_memory(plan, 0, 1);
  plan.ranks[0].barriers = {{0, 1}};
  add(plan, 0, copy(input(0), {remote(output(0), channel)}), 0);
  add(plan, 0, barrier(0), 0);
  add(plan, 0, barrier(0), 1);
  add(plan, 0, signal({channel}), 1);
  add(plan, 1, wait({channel}), 0);
  add(plan, 1, after(sync(), {{0, 0}}), 1);
  for (const uint32_t batches : {1u, 2u})  // signals also wait for stores that are on their way
    CHECK(microseconds_of(plan, {.piece_bytes = million, .max_batches = batches}) == about(10 + 2 + 1));
}

TEST_CASE("a plan that cannot run is an error") {
  Prediction prediction;
  const Machine machine = machine_of(machine_text);
  CHECK(simulate(relay({0, 1, 2, 3, 4}), machine, {.piece_bytes = 1}, &prediction) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) == "plan: 5 ranks, but the machine has 4 GPUs");
  Plan plan = relay({0, 1});
  plan.ranks[0].groups.clear();
  CHECK(simulate(plan, machine, {.piece_bytes = 1}, &prediction) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) == "plan: it does not complete; verify it");
}

}  // namespace
}  // namespace narrowcast::plan::simulate
