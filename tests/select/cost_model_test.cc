// The cost model: its text, its curves, and what is chosen by it. No GPU is needed.
#include "select/cost_model.h"

#include <string>

#include "doctest/doctest.h"
#include "select/decision.h"
#include "support/environment.h"

namespace narrowcast::select {
namespace {

using testing::Environment;

constexpr size_t packets = index_of("packets"), raw = index_of("blocks:raw"), window = index_of("blocks:window"),
                 nccl = index_of("nccl"), nccl_default = index_of("nccl:default");
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
    for (size_t path = 0; path < candidate_count; ++path) {
      for (int ranks = 2; ranks <= 8; ++ranks) {
        double before = 0;
        for (uint64_t bytes = 1; bytes <= uint64_t{1} << 32; bytes += bytes / 3 + 1) {
          CAPTURE(path);
          CAPTURE(ranks);
          CAPTURE(bytes);
          const double now = model.predict(operation, path, bytes, ranks, Link::nvlink).value_or(0);
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
  const std::string first = "some.costs, line 1: it does not begin with 'narrowcast-costs 2' and the name of a machine";
  CHECK(refusal("") == first);
  CHECK(refusal("narrowcast-costs 3 a machine\n") == first);
  CHECK(refusal(head + "all_reduce 2 host raw 1:1\n") == "some.costs: there is no line 'all_reduce 2 host window'");
}

TEST_CASE("the cheapest way is chosen, just before and just after the curves meet") {
  const CostModel model = model_of(gathers);
  const Policy policy{model};
  CHECK(decide(gather_of(9999), policy).runs_by_packets());
  CHECK_FALSE(decide(gather_of(10001), policy).runs_by_packets());
  CHECK(decide(gather_of(10001), policy).codec == NCAST_CODEC_RAW);
  // Where window takes 97% of raw.
  uint64_t coded = 100000;
  while (model.predict(Operation::all_gather, window, coded, 2, Link::nvlink) >
         0.97 * *model.predict(Operation::all_gather, raw, coded, 2, Link::nvlink))
    ++coded;
  CHECK(coded < 200000);
  CHECK(decide(gather_of(coded - 1), policy).codec == NCAST_CODEC_RAW);
  CHECK(decide(gather_of(coded), policy).codec == NCAST_CODEC_WINDOW);
  // What was asked for stays.
  CHECK(decide(gather_of(coded, NCAST_CODEC_RAW), policy).codec == NCAST_CODEC_RAW);
  CHECK_FALSE(decide(gather_of(1000, NCAST_CODEC_WINDOW), policy).runs_by_packets());
}

TEST_CASE("what the codec does not shrink may cost 3% more, or as much as NCCL takes") {
  const auto chosen = [](const std::string& lines) {
    return decide(gather_of(1000000), {model_of(gathers + lines)}).codec;
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
  const uint64_t most = most_packet_bytes(Operation::all_gather, 2, true);
  for (const ForcedTransport wanted : {ForcedTransport::none, ForcedTransport::packets}) {
    CHECK(decide(gather_of(most), {model, wanted}).runs_by_packets());
    CHECK_FALSE(decide(gather_of(most + 1), {model, wanted}).runs_by_packets());
    CallShape send = gather_of(100);
    send.operation = Operation::send;
    CHECK_FALSE(decide(send, {model, wanted}).runs_by_packets());
    CHECK(costs_of(send, model)[packets].typical == 0);
    CallShape by_pcie = gather_of(most);
    by_pcie.link = Link::pcie;
    CHECK_FALSE(decide(by_pcie, {model, wanted}).runs_by_packets());
    CallShape over_host = gather_of(100);
    over_host.link = Link::host;
    CHECK_FALSE(decide(over_host, {model, wanted}).runs_by_packets());
  }
  CHECK_FALSE(decide(gather_of(100), {model, ForcedTransport::blocks}).runs_by_packets());
}

TEST_CASE("packets that were not measured are not taken") {
  const CostModel model = model_of("all_gather 2 peer raw 1:9\nall_gather 2 peer window 1:9\n");
  const Decision choice = decide(gather_of(100), {model});
  CHECK_FALSE(choice.runs_by_packets());
  CHECK(std::string(choice.transport_reason) == "packets were not measured");
}

TEST_CASE("what was not measured goes by what its busiest link carries") {
  const CostModel model = model_of(gathers + "all_gather 2 peer nccl 1000:5\nall_gather 2 peer nccl-default 1000:6\n" +
                                   "all_reduce 4 peer packets 1000:4 2000:8\nall_reduce 4 peer raw 1000:4 2000:8\n"
                                   "all_reduce 4 peer window 1000:4 2000:8\n");
  const auto predict = [&](Operation operation, size_t path, uint64_t bytes, int ranks) {
    return model.predict(operation, path, bytes, ranks, Link::nvlink).value_or(0);
  };
  const double as_measured = predict(Operation::all_gather, raw, 300000, 2);
  CHECK(predict(Operation::all_gather, raw, 100000, 4) == doctest::Approx(as_measured));
  CHECK(predict(Operation::broadcast, raw, 300000, 4) == doctest::Approx(as_measured));
  CHECK(predict(Operation::all_to_all_v, raw, 300000, 2) == doctest::Approx(as_measured));
  CHECK(predict(Operation::send, raw, 300000, 8) == doctest::Approx(as_measured));
  // 2 (n - 1) / n: 1.5 of 4 ranks, 1 of 2.
  CHECK(predict(Operation::reduce, raw, 1800, 2) == doctest::Approx(4.8));
  CHECK(predict(Operation::reduce_scatter, raw, 1800, 2) == 0);
  CHECK(predict(Operation::all_gather, nccl, 1000, 2) == doctest::Approx(5));
  CHECK(predict(Operation::all_gather, nccl, 1000, 4) == 0);
  CHECK(predict(Operation::all_gather, nccl_default, 1000, 2) == doctest::Approx(6));
  CHECK(predict(Operation::all_gather, nccl_default, 1000, 4) == 0);
  CHECK(predict(Operation::broadcast, nccl, 1000, 2) == 0);
  CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::host) == std::nullopt);
}

TEST_CASE("over a link that was not measured, long messages are coded on their way through host memory") {
  const CostModel model = model_of("");
  CallShape shape = gather_of(uint64_t{1} << 20);
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_RAW);
  CHECK(decide(gather_of(1024), {model}).runs_by_packets());
  shape.link = Link::host;
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_WINDOW);
  shape.bytes = 1024;
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_RAW);
}

TEST_CASE("few CTAs code no faster than they can") {
  const CostModel model = model_of(
      "all_gather 2 peer raw 1000000:100\nall_gather 2 peer window 1000000:75\n"
      "all_gather 2 peer window-random 1000000:100\n");
  CallShape shape = gather_of(1'000'000);
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_WINDOW);
  shape.max_ctas = 32;
  CHECK(costs_of(shape, model)[raw].typical == doctest::Approx(100));
  CHECK(costs_of(shape, model)[window].typical > 100);
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_RAW);
  shape.max_ctas = 8;
  CHECK(costs_of(shape, model)[raw].typical > 200);
  shape.link = Link::host;
  CHECK(costs_of(shape, model)[raw].typical == 0);
}

TEST_CASE("few CTAs send long messages by blocks") {
  const CostModel model = model_of(
      "all_gather 2 peer packets 1000:3 1000000:50\nall_gather 2 peer raw 1000:6 1000000:60\n"
      "all_gather 2 peer window 1000:6 1000000:60\n");
  CallShape shape = gather_of(1'000'000);
  shape.codec = NCAST_CODEC_RAW;
  CHECK(decide(shape, {model}).runs_by_packets());
  shape.max_ctas = 8;
  CHECK(costs_of(shape, model)[packets].typical > 150);
  CHECK_FALSE(decide(shape, {model}).runs_by_packets());
  shape.bytes = 1000;
  CHECK(costs_of(shape, model)[packets].typical == doctest::Approx(3));
  CHECK(decide(shape, {model}).runs_by_packets());
}

TEST_CASE("types that the codec shrinks less gain less where bytes take the time, and pay as much where coding does") {
  const CostModel model = model_of(
      "all_gather 2 peer raw 1000:5 1000000:100\n"
      "all_gather 2 peer window 1000:8 1000000:70\n"
      "all_gather 2 peer window-random 1000:6 1000000:100\n");
  const auto costs = [&](ncast_dtype dtype, uint64_t bytes) {
    return costs_of({Operation::all_gather, dtype, NCAST_CODEC_AUTO, bytes, 2}, model);
  };
  CHECK(costs(NCAST_BFLOAT16, 1000000)[window].typical == doctest::Approx(70));
  CHECK(costs(NCAST_FLOAT32, 1000000)[window].typical ==
        doctest::Approx(85).epsilon(0.01));  // it saves about half as much
  double before = 70;
  for (const ncast_dtype dtype : {NCAST_FLOAT8_E5M2, NCAST_FLOAT32, NCAST_FLOAT64, NCAST_FLOAT16, NCAST_FLOAT8_E4M3}) {
    CHECK(costs(dtype, 1000000)[window].typical > before);
    before = costs(dtype, 1000000)[window].typical;
    CHECK(before < 100);
    CHECK(costs(dtype, 1000)[window].typical == doctest::Approx(8));
  }
  CHECK(costs(NCAST_INT8, 1000000)[window].typical == 0);
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
        const Decision here = decide(shape, {sent}), there = decide(shape, {received});
        CHECK(here.runs_by_packets() == there.runs_by_packets());
        CHECK(here.codec == there.codec);
      }
    }
  }
}

TEST_CASE("what was not measured with a number of ranks takes the nearest number, and the larger of two as near") {
  const auto model = [](const std::string& ranks) {
    std::string lines;
    for (size_t i = 0; i < ranks.size(); ++i) {
      // One time for all sizes, so that only the number of ranks tells the curves apart.
      const std::string time = std::to_string(10 * (ranks[i] - '0'));
      for (const char* const path : {"raw", "window"})
        lines += "send " + ranks.substr(i, 1) + " peer " + path + " 1:" + time + " 1000000:" + time + "\n";
    }
    return model_of(lines);
  };
  const auto of_ranks = [&](const std::string& measured, int ranks) {
    return model(measured).predict(Operation::send, raw, 1000, ranks, Link::nvlink).value_or(0);
  };
  CHECK(of_ranks("28", 2) == 20);
  CHECK(of_ranks("28", 3) == 20);
  CHECK(of_ranks("28", 4) == 20);
  CHECK(of_ranks("28", 5) == 80);  // equally near
  CHECK(of_ranks("28", 6) == 80);
  CHECK(of_ranks("28", 8) == 80);
  CHECK(of_ranks("82", 5) == 80);  // whatever the order of the lines
  CHECK(of_ranks("82", 4) == 20);
  CHECK(of_ranks("246", 3) == 40);
  CHECK(of_ranks("246", 5) == 60);
  CHECK(of_ranks("246", 8) == 60);
  CHECK(of_ranks("3", 2) == 30);
}

TEST_CASE("a model of version 2 names candidates, links, data and kernels") {
  const std::string second = "narrowcast-costs 2 a machine\nkernels 0123456789abcdef\n";
  CostModel model;
  REQUIRE(CostModel::parse(second + "all_gather 2 pcie blocks:raw 1000:7\nall_gather 2 pcie blocks:window 1000:5\n"
                                    "all_gather 2 pcie blocks:window/incompressible 1000:9\n"
                                    "all_gather 2 pcie nccl:default 1000:8\n",
                           "the test", &model) == NCAST_OK);
  CHECK(model.kernels() == "0123456789abcdef");
  CHECK(describe_mismatch(model) ==
        std::string("the cost model was measured on other kernels (0123456789abcdef, this library has ") +
            kernels_hash() + ")");
  const auto predict = [&](size_t candidate, Link link, Data data = Data::typical) {
    return model.predict(Operation::all_gather, candidate, 1000, 2, link, data).value_or(0);
  };
  CHECK(predict(raw, Link::pcie) == 7);
  CHECK(predict(window, Link::pcie) == 5);
  CHECK(predict(window, Link::pcie, Data::incompressible) == 9);
  CHECK(predict(raw, Link::pcie, Data::incompressible) == 0);
  CHECK(predict(nccl_default, Link::pcie) == 8);
  CHECK(predict(packets, Link::pcie) == 0);
  CHECK(predict(raw, Link::nvlink) == 7);  // the only link between GPUs that was measured
  CHECK(predict(raw, Link::host) == 0);

  const auto refused = [&](const std::string& line, const std::string& why) {
    CHECK(refusal(second + line + "\n") == "some.costs, line 3: " + why);
  };
  refused("all_gather 2 peer blocks:raw 1:1", "'peer' is not a link: nvlink, pcie or host");
  refused("all_gather 2 shm blocks:raw 1:1", "'shm' is not a link: nvlink, pcie or host");
  refused("all_gather 2 nvlink raw 1:1", "'raw' is not a candidate");
  refused("all_gather 2 nvlink blocks:window/random 1:1", "'blocks:window/random' is not a candidate");
  CHECK(refusal(second + "all_gather 2 host blocks:raw 1:1\n") ==
        "some.costs: there is no line 'all_gather 2 host blocks:window'");
}

TEST_CASE("each link between GPUs has its own curves") {
  CostModel model;
  REQUIRE(CostModel::parse("narrowcast-costs 2 a machine\nall_gather 2 pcie blocks:raw 1:7\n"
                           "all_gather 2 pcie blocks:window 1:7\nall_gather 2 nvlink blocks:raw 1:3\n"
                           "all_gather 2 nvlink blocks:window 1:3\n",
                           "the test", &model) == NCAST_OK);
  CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::pcie) == 7);
  CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::nvlink) == 3);
  CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::host) == std::nullopt);
}

TEST_CASE("the built-in model does not say which kernels it was measured on") {
  CHECK(CostModel::shipped().kernels().empty());
  CHECK(describe_mismatch(CostModel::shipped()) == "the cost model does not say which kernels it was measured on");
}

TEST_CASE("calls between processes are decided by the same function") {
  const CostModel& model = CostModel::shipped();
  for (const ncast_codec codec : {NCAST_CODEC_AUTO, NCAST_CODEC_RAW, NCAST_CODEC_WINDOW}) {
    CallShape shape = gather_of(uint64_t{64} << 20, codec);
    shape.link = Link::shared_memory;
    const Decision decision = decide(shape, {model});
    CHECK(decision.codec == (codec == NCAST_CODEC_WINDOW ? NCAST_CODEC_WINDOW : NCAST_CODEC_RAW));
    CHECK(decision.candidate == (codec == NCAST_CODEC_WINDOW ? "frames:window" : "frames:raw"));
    CHECK(decision.codec == codec_between_processes(codec));
    CHECK_FALSE(decision.predicted.is_known());
  }
}

TEST_CASE("a call is compared with NCCL's best way and with its default") {
  const std::string lines = "all_gather 2 peer raw 1000:5\nall_gather 2 peer window 1000:9\n";
  const auto compared = [&](const std::string& more, const char* with) {
    return compare(decide(gather_of(1000, NCAST_CODEC_RAW), {model_of(lines + more)}), with);
  };
  const std::string both = "all_gather 2 peer nccl 1000:4\nall_gather 2 peer nccl-default 1000:6\n";
  CHECK(std::string(compared(both, "nccl").reason) == "NCCL is as fast, by the cost model");
  CHECK(compared(both, "nccl").nccl_microseconds == 4);
  CHECK(compared(both, "nccl:default").reason == nullptr);
  CHECK(compared(both, "nccl:default").nccl_microseconds == 6);
  CHECK(compared(both, "nccl:default").microseconds == 5);
  // A tie is NCCL's. Without its default, the best counts.
  CHECK(compared("all_gather 2 peer nccl 1000:5\n", "nccl:default").reason != nullptr);
  CHECK(std::string(compared("", "nccl").reason) == "the cost model does not know how long NCCL takes");
  CHECK(std::string(compare(decide(gather_of(1000), {model_of("")}), "nccl").reason) ==
        "the cost model does not know this call");
}

TEST_CASE("links between GPUs stand in for each other, whichever was measured") {
  for (const auto& [measured, asked] : {std::pair{Link::nvlink, Link::pcie}, {Link::pcie, Link::nvlink}}) {
    const std::string line = std::string("all_gather 2 ") + name_of(measured) + " blocks:";
    CostModel model;
    REQUIRE(CostModel::parse("narrowcast-costs 2 a machine\n" + line + "raw 1:7\n" + line + "window 1:5\n", "the test",
                             &model) == NCAST_OK);
    CHECK(model.predict(Operation::all_gather, raw, 1, 2, asked) == 7);
    CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::host) == std::nullopt);
  }
}

TEST_CASE("two shots take twice as long as the one shot that they are derived from") {
  const CostModel model =
      model_of("all_reduce 2 peer packets 1:4 100000000:4\nall_reduce 2 peer raw 1:9\nall_reduce 2 peer window 1:9\n");
  const auto predict = [&](uint64_t bytes) {
    return model.predict(Operation::all_reduce, packets, bytes, 4, Link::nvlink).value_or(0);
  };
  CHECK(predict(most_one_shot_bytes(4)) == doctest::Approx(4));
  CHECK(predict(most_one_shot_bytes(4) + 1) == doctest::Approx(8));
}

TEST_CASE("no decision about an all_to_all_v depends on its bytes") {
  const CostModel model = model_of("all_to_all 2 peer raw 1:1 1000000:100\nall_to_all 2 peer window 1:1 1000000:10\n");
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1000000}}) {
    CallShape shape = gather_of(bytes);
    shape.operation = Operation::all_to_all_v;
    const Decision decision = decide(shape, {model});
    CHECK(decision.candidate == "blocks:raw");
    CHECK(decision.codec == NCAST_CODEC_RAW);
    CHECK(std::string(decision.codec_reason) == "the ranks do not know each other's counts");
    shape.operation = Operation::all_to_all;
    if (bytes != 0) CHECK(decide(shape, {model}).codec == NCAST_CODEC_WINDOW);
  }
}

}  // namespace
}  // namespace narrowcast::select
