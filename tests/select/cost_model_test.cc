// The cost model: its text, its curves, and what is chosen by it. No GPU is needed.
#include "select/cost_model.h"

#include <string>

#include "doctest/doctest.h"
#include "select/choice.h"
#include "support/environment.h"

namespace narrowcast::select {
namespace {

using testing::Environment;

constexpr Path paths[] = {Path::packets, Path::raw, Path::window, Path::window_random, Path::nccl, Path::nccl_default};
constexpr Operation operations[] = {Operation::send,           Operation::recv,       Operation::broadcast,
                                    Operation::reduce,         Operation::gather,     Operation::scatter,
                                    Operation::all_gather,     Operation::all_to_all, Operation::all_to_all_v,
                                    Operation::reduce_scatter, Operation::all_reduce};

// Packets win up to 10000 bytes; window from 100000 on, from 200000 by more than 3%.
const std::string head = "narrowcast-costs 1 a machine\n";
const std::string gathers =
    "all_gather 2 peer packets 1000:2 10000:10 100000:100\n"
    "all_gather 2 peer raw 1000:10 100000:10 1000000:100\n"
    "all_gather 2 peer window 100000:10 1000000:50\n";

CostModel model_of(const std::string& lines) {
  CostModel model;
  const ncast_status status = CostModel::parse(head + lines, "the test", &model);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return model;
}

std::string refusal(const std::string& text) {
  CostModel model;
  REQUIRE(CostModel::parse(text, "some.costs", &model) == NCAST_INVALID_ARGUMENT);
  return ncast_last_error();
}

CallShape gather_of(uint64_t bytes, ncast_codec codec = NCAST_CODEC_AUTO) {
  return {Operation::all_gather, NCAST_BFLOAT16, codec, bytes, 2};
}

TEST_CASE("a curve goes through its points, and on as it ended") {
  const Curve curve({{100, 2}, {400, 8}, {800, 10}});
  CHECK(curve.at(100) == doctest::Approx(2));
  CHECK(curve.at(200) == doctest::Approx(4));
  CHECK(curve.at(400) == doctest::Approx(8));
  CHECK(curve.at(0) == doctest::Approx(2));
  CHECK(curve.at(800) == doctest::Approx(10));
  CHECK(curve.at(1600) == doctest::Approx(14));
  CHECK(Curve({{100, 5}}).at(300) == doctest::Approx(15));
}

TEST_CASE("more bytes never take less time") {
  const Curve noisy({{1, 5}, {2, 4}, {4, 6}, {8, 5.5}});
  CHECK(noisy.at(2) == doctest::Approx(5));
  CHECK(noisy.at(100) == doctest::Approx(6));
  const CostModel& model = CostModel::shipped();
  for (const Operation operation : operations) {
    for (const Path path : paths) {
      for (int ranks = 2; ranks <= 8; ++ranks) {
        double before = 0;
        for (uint64_t bytes = 1; bytes <= uint64_t{1} << 32; bytes += bytes / 3 + 1) {
          CAPTURE(path_name(path));
          CAPTURE(ranks);
          CAPTURE(bytes);
          const double now = model.predict(operation, path, bytes, ranks, false).value_or(0);
          CHECK(now >= before);
          before = now;
        }
      }
    }
  }
}

TEST_CASE("lines that do not follow the format are refused by file and line") {
  const auto refused = [&](const std::string& line, const std::string& why) {
    CHECK(refusal(head + "# all is well here\n" + gathers + line + "\n") == "some.costs, line 6: " + why);
  };
  refused("all_median 2 peer raw 1:1", "'all_median' is not an operation that is measured");
  refused("recv 2 peer raw 1:1", "'recv' is not an operation that is measured");
  refused("all_reduce 1 peer raw 1:1", "'1' is not a number of ranks, 2 to 8");
  refused("all_reduce two peer raw 1:1", "'two' is not a number of ranks, 2 to 8");
  refused("all_reduce 2 nvlink raw 1:1", "'nvlink' is not a link: peer or host");
  refused("all_reduce 2 peer zip 1:1", "'zip' is not a path");
  refused("all_reduce 2 peer raw", "the curve has no points");
  refused("all_reduce 2 peer raw 1", "'1' is not BYTES:MICROSECONDS");
  refused("all_reduce 2 peer raw 1:2 1k:3", "'1k:3' is not BYTES:MICROSECONDS");
  refused("all_reduce 2 peer raw 1:2us", "'1:2us' is not BYTES:MICROSECONDS");
  refused("all_reduce 2 peer raw 0:2", "'0:2' has to be more than 0");
  refused("all_reduce 2 peer raw 1:-2", "'1:-2' has to be more than 0");
  refused("all_reduce 2 peer raw 1:inf", "'1:inf' has to be more than 0");
  refused("all_reduce 2 peer raw 1:2 1:3", "the bytes of '1:3' do not ascend");
  refused("all_gather 2 peer raw 1:2", "the curve was given before");
}

TEST_CASE("a text that is no model, or lacks what is to be compared, is refused") {
  const std::string first = "some.costs, line 1: it does not begin with 'narrowcast-costs 1' and the name of a machine";
  CHECK(refusal("") == first);
  CHECK(refusal("narrowcast-costs 2 a machine\n") == first);
  CHECK(refusal(head + "all_reduce 2 host raw 1:1\n") == "some.costs: there is no line 'all_reduce 2 host window'");
}

TEST_CASE("the cheapest way is chosen, just before and just after the curves meet") {
  const CostModel model = model_of(gathers);
  const Policy policy{model};
  CHECK(choose(gather_of(9999), policy).packets);
  CHECK_FALSE(choose(gather_of(10001), policy).packets);
  CHECK(choose(gather_of(10001), policy).codec == NCAST_CODEC_RAW);
  // Where window takes 97% of raw.
  uint64_t coded = 100000;
  while (model.predict(Operation::all_gather, Path::window, coded, 2, false) >
         0.97 * *model.predict(Operation::all_gather, Path::raw, coded, 2, false))
    ++coded;
  CHECK(coded < 200000);
  CHECK(choose(gather_of(coded - 1), policy).codec == NCAST_CODEC_RAW);
  CHECK(choose(gather_of(coded), policy).codec == NCAST_CODEC_WINDOW);
  // What was asked for stays.
  CHECK(choose(gather_of(coded, NCAST_CODEC_RAW), policy).codec == NCAST_CODEC_RAW);
  CHECK_FALSE(choose(gather_of(1000, NCAST_CODEC_WINDOW), policy).packets);
}

TEST_CASE("what the codec does not shrink may cost 3% more, or as much as NCCL takes") {
  const auto chosen = [](const std::string& lines) {
    return choose(gather_of(1000000), {model_of(gathers + lines)}).codec;
  };
  CHECK(chosen("all_gather 2 peer window-random 1000000:103\n") == NCAST_CODEC_WINDOW);
  CHECK(chosen("all_gather 2 peer window-random 1000000:104\n") == NCAST_CODEC_RAW);
  CHECK(chosen("all_gather 2 peer window-random 1000000:104\nall_gather 2 peer nccl 1000000:102\n") ==
        NCAST_CODEC_WINDOW);
}

TEST_CASE("packets are taken only where they can be, whatever is cheap or asked for") {
  const CostModel model = model_of(
      "all_gather 2 peer packets 1:1 2:1\nall_gather 2 peer raw 1:9 2:9\nall_gather 2 peer window 1:9 2:9\n"
      "send 2 peer packets 1:1 2:1\nsend 2 peer raw 1:9 2:9\nsend 2 peer window 1:9 2:9\n");
  const uint64_t most = most_packet_bytes(PacketOperation::all_gather, 2, true);
  for (const WantedPath wanted : {WantedPath::cheapest, WantedPath::packets}) {
    CHECK(choose(gather_of(most), {model, wanted}).packets);
    CHECK_FALSE(choose(gather_of(most + 1), {model, wanted}).packets);
    CallShape send = gather_of(100);
    send.operation = Operation::send;
    CHECK_FALSE(choose(send, {model, wanted}).packets);
    CHECK(costs_of(send, model).packets == 0);
    CallShape by_pcie = gather_of(most);
    by_pcie.nvlink = false;
    CHECK_FALSE(choose(by_pcie, {model, wanted}).packets);
    CallShape over_host = gather_of(100);
    over_host.over_host = true;
    CHECK_FALSE(choose(over_host, {model, wanted}).packets);
  }
  CHECK_FALSE(choose(gather_of(100), {model, WantedPath::blocks}).packets);
}

TEST_CASE("packets that were not measured are not taken") {
  const CostModel model = model_of("all_gather 2 peer raw 1:9\nall_gather 2 peer window 1:9\n");
  const Choice choice = choose(gather_of(100), {model});
  CHECK_FALSE(choice.packets);
  CHECK(std::string(choice.packets_reason) == "packets were not measured");
}

TEST_CASE("what was not measured goes by what its busiest link carries") {
  const CostModel model = model_of(gathers + "all_gather 2 peer nccl 1000:5\nall_gather 2 peer nccl-default 1000:6\n" +
                                   "all_reduce 4 peer packets 1000:4 2000:8\nall_reduce 4 peer raw 1000:4 2000:8\n"
                                   "all_reduce 4 peer window 1000:4 2000:8\n");
  const auto predict = [&](Operation operation, Path path, uint64_t bytes, int ranks) {
    return model.predict(operation, path, bytes, ranks, false).value_or(0);
  };
  const double as_measured = predict(Operation::all_gather, Path::raw, 300000, 2);
  CHECK(predict(Operation::all_gather, Path::raw, 100000, 4) == doctest::Approx(as_measured));
  CHECK(predict(Operation::broadcast, Path::raw, 300000, 4) == doctest::Approx(as_measured));
  CHECK(predict(Operation::all_to_all_v, Path::raw, 300000, 2) == doctest::Approx(as_measured));
  CHECK(predict(Operation::send, Path::raw, 300000, 8) == doctest::Approx(as_measured));
  // 2 (n - 1) / n: 1.5 of 4 ranks, 1 of 2.
  CHECK(predict(Operation::reduce, Path::raw, 1800, 2) == doctest::Approx(4.8));
  CHECK(predict(Operation::reduce_scatter, Path::raw, 1800, 2) == 0);
  CHECK(predict(Operation::all_gather, Path::nccl, 1000, 2) == doctest::Approx(5));
  CHECK(predict(Operation::all_gather, Path::nccl, 1000, 4) == 0);
  CHECK(predict(Operation::all_gather, Path::nccl_default, 1000, 2) == doctest::Approx(6));
  CHECK(predict(Operation::all_gather, Path::nccl_default, 1000, 4) == 0);
  CHECK(predict(Operation::broadcast, Path::nccl, 1000, 2) == 0);
  CHECK(model.predict(Operation::all_gather, Path::raw, 1, 2, true) == std::nullopt);
}

TEST_CASE("over a link that was not measured, long messages are coded on their way through host memory") {
  const CostModel model = model_of("");
  CallShape shape = gather_of(uint64_t{1} << 20);
  CHECK(choose(shape, {model}).codec == NCAST_CODEC_RAW);
  CHECK(choose(gather_of(1024), {model}).packets);
  shape.over_host = true;
  CHECK(choose(shape, {model}).codec == NCAST_CODEC_WINDOW);
  shape.bytes = 1024;
  CHECK(choose(shape, {model}).codec == NCAST_CODEC_RAW);
}

TEST_CASE("few CTAs code no faster than they can") {
  const CostModel model = model_of(
      "all_gather 2 peer raw 1000000:100\nall_gather 2 peer window 1000000:75\n"
      "all_gather 2 peer window-random 1000000:100\n");
  CallShape shape = gather_of(1'000'000);
  CHECK(choose(shape, {model}).codec == NCAST_CODEC_WINDOW);
  shape.max_ctas = 32;
  CHECK(costs_of(shape, model).raw == doctest::Approx(100));
  CHECK(costs_of(shape, model).window > 100);
  CHECK(choose(shape, {model}).codec == NCAST_CODEC_RAW);
  shape.max_ctas = 8;
  CHECK(costs_of(shape, model).raw > 200);
  shape.over_host = true;
  CHECK(costs_of(shape, model).raw == 0);
}

TEST_CASE("few CTAs send long messages by blocks") {
  const CostModel model = model_of(
      "all_gather 2 peer packets 1000:3 1000000:50\nall_gather 2 peer raw 1000:6 1000000:60\n"
      "all_gather 2 peer window 1000:6 1000000:60\n");
  CallShape shape = gather_of(1'000'000);
  shape.codec = NCAST_CODEC_RAW;
  CHECK(choose(shape, {model}).packets);
  shape.max_ctas = 8;
  CHECK(costs_of(shape, model).packets > 150);
  CHECK_FALSE(choose(shape, {model}).packets);
  shape.bytes = 1000;
  CHECK(costs_of(shape, model).packets == doctest::Approx(3));
  CHECK(choose(shape, {model}).packets);
}

TEST_CASE("types that the codec shrinks less gain less where bytes take the time, and pay as much where coding does") {
  const CostModel model = model_of(
      "all_gather 2 peer raw 1000:5 1000000:100\n"
      "all_gather 2 peer window 1000:8 1000000:70\n"
      "all_gather 2 peer window-random 1000:6 1000000:100\n");
  const auto costs = [&](ncast_dtype dtype, uint64_t bytes) {
    return costs_of({Operation::all_gather, dtype, NCAST_CODEC_AUTO, bytes, 2}, model);
  };
  CHECK(costs(NCAST_BFLOAT16, 1000000).window == doctest::Approx(70));
  CHECK(costs(NCAST_FLOAT32, 1000000).window == doctest::Approx(85).epsilon(0.01));  // it saves about half as much
  double before = 70;
  for (const ncast_dtype dtype : {NCAST_FLOAT8_E5M2, NCAST_FLOAT32, NCAST_FLOAT64, NCAST_FLOAT16, NCAST_FLOAT8_E4M3}) {
    CHECK(costs(dtype, 1000000).window > before);
    before = costs(dtype, 1000000).window;
    CHECK(before < 100);
    CHECK(costs(dtype, 1000).window == doctest::Approx(8));
  }
  CHECK(costs(NCAST_INT8, 1000000).window == 0);
}

TEST_CASE("a choice that is remembered is the one that would be made") {
  const CostModel model = CostModel::shipped();
  RecentChoices recent;
  for (int round = 0; round < 2; ++round) {
    for (const Operation operation : operations) {
      for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW, NCAST_CODEC_AUTO}) {
        for (uint64_t bytes = 1; bytes <= uint64_t{1} << 30; bytes *= 2) {
          for (const uint64_t more : {0, 0, 1}) {
            const CallShape shape{operation, NCAST_BFLOAT16, codec, bytes + more, 2};
            const Choice made = choose(shape, {model}), remembered = recent.of(shape, {model});
            CHECK(remembered.packets == made.packets);
            CHECK(remembered.codec == made.codec);
            CHECK(remembered.reason == made.reason);
          }
        }
      }
    }
  }
}

TEST_CASE("choices are the same whatever this process's environment, once the text has come") {
  const CostModel sent = CostModel::shipped();
  const Environment model("NARROWCAST_COST_MODEL", "/nowhere");
  const Environment path("NARROWCAST_PATH", "blocks");
  const Environment ctas("NARROWCAST_MAX_CTAS", "1");
  CostModel received;
  REQUIRE(CostModel::parse(sent.text(), "the cost model of rank 0", &received) == NCAST_OK);
  for (const Operation operation : operations) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (uint64_t bytes = 2; bytes <= uint64_t{1} << 30; bytes *= 2) {
        const CallShape shape{operation, NCAST_BFLOAT16, NCAST_CODEC_AUTO, bytes, ranks};
        const Choice here = choose(shape, {sent}), there = choose(shape, {received});
        CHECK(here.packets == there.packets);
        CHECK(here.codec == there.codec);
      }
    }
  }
}

}  // namespace
}  // namespace narrowcast::select
