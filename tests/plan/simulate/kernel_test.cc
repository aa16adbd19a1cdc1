#include "plan/simulate/kernel.h"

#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "predictions.h"
#include "select/block_split.h"

namespace narrowcast::plan::simulate {
namespace {

static_assert(reducing_warps ==
              select::reduce_rings(select::reduce_warps(select::most_shared_bytes, block_bytes, /*value_bytes=*/2)));
static_assert(min_clustered_bytes == double{select::min_clustered_bytes});

TEST_CASE("in each turn of a reduction a warp handles one block, and only as many warps as needed take part") {
  const auto batches_of = [](uint64_t blocks) {
    return predict(reduction(), {.piece_bytes = blocks * 4096},
                   machine_with({{"\"gpus_per_host\": 2", "\"gpus_per_host\": 4"}}))
        .batches;
  };
  CHECK(batches_of(20) == 2);    // two blocks for each of the 10 CTAs
  CHECK(batches_of(150) == 8);   // one turn of all 15 warps, as eight workers
  CHECK(batches_of(151) == 16);  // two turns of 76 warps
  CHECK(batches_of(301) == 24);
}

TEST_CASE("kernels that reduce send one turn ahead and receive results one turn later, if rings are long enough") {
  // One block of a chunk in each of 10 turns; only flights take time.
  const Machine machine = machine_with({{"\"link_gbps\": 100", "\"link_gbps\": 1e9"}, {"\"ctas\": 10", "\"ctas\": 1"}});
  const Options options{.piece_bytes = 2 * 10 * 15 * 4096, .workers = 1, .records_timeline = true};
  const Prediction ahead = predict(reduction_in_turns(4), options, machine);
  CHECK(ahead.batches == 10);
  std::vector<std::vector<double>> begins(3, std::vector<double>(10));
  for (const Interval& one : ahead.timeline)
    if (one.rank == 0) begins[one.step][one.batch] = one.begin;
  for (size_t batch = 0; batch + 2 < 10; ++batch) {
    CHECK(begins[0][batch + 1] <= begins[1][batch]);
    CHECK(begins[1][batch + 1] <= begins[2][batch]);
  }
  // Otherwise every turn takes two flights.
  const double after_each_other = microseconds_of(reduction_in_turns(2), options, machine);
  CHECK(after_each_other == doctest::Approx(1 + 10 * 2 * 2).epsilon(0.01));
  CHECK(ahead.microseconds < 0.5 * after_each_other);
}

TEST_CASE("a warp loads the next payload while it handles one, if that has arrived") {
  // Rank 0 sends three messages at the same time. Rank 1 receives them one after another.
  Plan plan = empty_plan(Operation::broadcast, 2, 3);
  plan.ranks[0].groups.resize(3);
  for (uint32_t i = 0; i < 3; ++i) {
    const uint32_t ring = add_ring(plan, 0, 1, 2);
    add(plan, 0, copy(input(i), {message(ring)}), i);
    add(plan, 1, copy(message(ring), {output(i)}));
  }
  const Machine machine = machine_with({{"\"slot_latency_us\": 0", "\"slot_latency_us\": 7"},
                                        {"\"step_us\": 0", "\"step_us\": 3"},
                                        {"\"link_gbps\": 100", "\"link_gbps\": 1e9"}});
  const auto us = [&](uint32_t batches) {
    return microseconds_of(plan, {.piece_bytes = 3 * 4096, .max_batches = batches}, machine);
  };
  CHECK(us(2) == about(1 + (7 + 3) + 2 + (7 + 3) + 2 * 3));
  CHECK(us(1) == about(1 + (7 + 3) + 2 + 3 * (7 + 3)));
}

TEST_CASE("kernels with fixed blocks per warp use less of the rate of links, except in clusters") {
  const Plan all_reduce = reduction_in_turns(4);
  const auto us = [](const Plan& plan, uint64_t bytes, const std::string& keys) {
    const Machine machine = one_host({{"\"ctas\": 10", "\"ctas\": 10" + keys}});
    return microseconds_of(plan, {.piece_bytes = bytes, .extrapolates = true}, machine);
  };
  const uint64_t shorter = uint64_t{30} << 20, longer = uint64_t{32} << 20;  // of two chunks
  const std::string slow = R"(, "slow_sm_share": 0.5)", clusters = R"(, "clustered_ctas": 10)";
  CHECK(us(all_reduce, shorter, slow) == doctest::Approx(2 * us(all_reduce, shorter, "")).epsilon(0.01));
  CHECK(us(all_reduce, shorter, slow + clusters) == us(all_reduce, shorter, slow));
  CHECK(us(all_reduce, longer, slow + clusters) == us(all_reduce, longer, ""));
  const Plan one_shot = all_pairs_all_reduce(2);
  CHECK(us(one_shot, longer, slow + clusters) == us(one_shot, longer, slow));
  CHECK(us(one_shot, longer, slow) > 1.5 * us(one_shot, longer, ""));
  CHECK(us(relay({0, 1, 2}), longer, slow) > 1.5 * us(relay({0, 1, 2}), longer, ""));
  CHECK(us(relay({0, 1}), longer, slow) == us(relay({0, 1}), longer, ""));
  const std::string slow_raw = slow + R"(, "slow_sm_raw_share": 0.8)";
  CHECK(us(all_reduce, shorter, slow_raw) == doctest::Approx(1.25 * us(all_reduce, shorter, "")).epsilon(0.01));
  const Plan encoded = encoding(all_reduce);
  CHECK(us(encoded, shorter, slow_raw) == us(encoded, shorter, slow));
}

TEST_CASE("the first blocks of warps that reduce share a link, unless they are encoded") {
  const Machine machine = one_host();
  const auto us = [&](const Plan& plan, uint32_t turns) {
    return microseconds_of(plan, {.piece_bytes = 2 * turns * 150 * 4096}, machine);  // 150 warps
  };
  const Plan raw = reduction_in_turns(4), encoded = encoding(raw);
  // One turn of eight workers: every first result follows the last part, or the first one.
  const double turn_us = 150 * 4096 / 1e5;
  CHECK(us(raw, 1) == about(1 + 2 * (turn_us + 2)));
  CHECK(us(encoded, 1) == about(1 + 2 * turn_us + 2));
  // Only first blocks do.
  CHECK(us(raw, 10) - us(encoded, 10) < us(raw, 1) - us(encoded, 1) + turn_us);
}

TEST_CASE("generated kernels that reduce have their own rate of codecs, hand-written ones do not") {
  const std::string keys = R"("reducing_codec_share": 0.5, "generated_codec_share": 0.25, "ctas": 10)";
  const Machine machine = one_host({{"\"ctas\": 10", keys}, {"\"cta_decode_gbps\": 1e9", "\"cta_decode_gbps\": 2.0"}});
  // Rank 2 decodes what two ranks send; in a second plan it reduces twice.
  const Options options{.piece_bytes = 32 << 20, .ratio = 1e-6};
  Plan plan = reduction();
  const double once = microseconds_of(plan, options, machine);
  std::vector<Step>& steps = plan.ranks[2].groups[0].steps;
  Step second = steps[0];
  second.from = {steps[0].from[0], steps[0].from[2]};
  std::erase_if(steps[0].from, [&](const Operand& one) { return one == second.from[0]; });
  steps.push_back(second);
  CHECK(microseconds_of(plan, options, machine) == doctest::Approx(2 * once).epsilon(0.02));
}

TEST_CASE("in clusters a call has fewer CTAs") {
  const auto us = [](const std::string& keys) {
    const Machine machine =
        machine_with({{"\"ctas\": 10", "\"ctas\": 10" + keys}, {"\"cta_move_gbps\": 1e9", "\"cta_move_gbps\": 1.0"}});
    return microseconds_of(reduction_in_turns(4), {.piece_bytes = 32 << 20, .extrapolates = true}, machine);
  };
  CHECK(us(R"(, "clustered_ctas": 5)") == doctest::Approx(2 * us("")).epsilon(0.02));
  CHECK(us(R"(, "clustered_ctas": 20)") == us(""));
}

}  // namespace
}  // namespace narrowcast::plan::simulate
