// The text of cost models, and their curves. No GPU is needed.
#include "select/cost_model.h"

#include <string>

#include "doctest/doctest.h"
#include "models.h"
#include "select/decision.h"

namespace narrowcast::select {
namespace {

using namespace testing;

std::string rejection(const std::string& text) {
  CostModel model;
  REQUIRE(CostModel::parse(text, "some.costs", &model) == NCAST_INVALID_ARGUMENT);
  return ncast_last_error();
}

TEST_CASE("a curve passes through its points and continues with its last slope") {
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
  for (const operation::Description& row : operation::descriptions) {
    for (size_t path = 0; path < candidates().size(); ++path) {
      for (int ranks = 2; ranks <= 8; ++ranks) {
        double before = 0;
        for (uint64_t bytes = 1; bytes <= uint64_t{1} << 32; bytes += bytes / 3 + 1) {
          CAPTURE(path);
          CAPTURE(ranks);
          CAPTURE(bytes);
          const double now = model.predict(row.operation, path, bytes, ranks, Link::nvlink).value_or(0);
          CHECK(now >= before);
          before = now;
        }
      }
    }
  }
}

TEST_CASE("invalid lines are rejected with file and line") {
  const auto rejected = [&](const std::string& line, const std::string& why) {
    CHECK(rejection(heading + "# a comment\n" + gathers + line + "\n") == "some.costs, line 6: " + why);
  };
  rejected("all_median 2 nvlink blocks:raw 1:1", "'all_median' is not an operation that is measured");
  rejected("recv 2 nvlink blocks:raw 1:1", "'recv' is not an operation that is measured");
  rejected("all_reduce 1 nvlink blocks:raw 1:1", "'1' is not a number of ranks, 2 to 8");
  rejected("all_reduce two nvlink blocks:raw 1:1", "'two' is not a number of ranks, 2 to 8");
  rejected("all_reduce 2 nvlink blocks:raw", "the curve has no points");
  rejected("all_reduce 2 nvlink blocks:raw 1", "'1' is not BYTES:MICROSECONDS");
  rejected("all_reduce 2 nvlink blocks:raw 1:2 1k:3", "'1k:3' is not BYTES:MICROSECONDS");
  rejected("all_reduce 2 nvlink blocks:raw 1:2us", "'1:2us' is not BYTES:MICROSECONDS");
  rejected("all_reduce 2 nvlink blocks:raw 0:2", "'0:2' must be positive");
  rejected("all_reduce 2 nvlink blocks:raw 1:-2", "'1:-2' must be positive");
  rejected("all_reduce 2 nvlink blocks:raw 1:inf", "'1:inf' must be positive");
  rejected("all_reduce 2 nvlink blocks:raw 1:2 1:3", "the bytes of '1:3' do not ascend");
  rejected("all_gather 2 nvlink blocks:raw 1:2", "the curve is given twice");
  rejected("shared_kib 99.5", "'99.5' is not a number of KiB, 64 to 227");
  rejected("shared_kib 63", "'63' is not a number of KiB, 64 to 227");
  rejected("network_gbps 0", "'0' is not a number of Gbit/s above 0");
  rejected("network_gbps 10gbit", "'10gbit' is not a number of Gbit/s above 0");
  rejected("network_gbps inf", "'inf' is not a number of Gbit/s above 0");
}

TEST_CASE("other texts, and models without the curves to compare, are rejected") {
  const std::string first = "some.costs, line 1: expected 'narrowcast-costs 2' and the name of a machine";
  CHECK(rejection("") == first);
  CHECK(rejection("narrowcast-costs 3 a machine\n") == first);
  CHECK(rejection(heading + "all_reduce 2 host blocks:raw 1:1\n") ==
        "some.costs: there is no line 'all_reduce 2 host blocks:window'");
}

TEST_CASE("a model names candidates, links, data and kernels") {
  const std::string second = "narrowcast-costs 2 a machine\nkernels 0123456789abcdef\n";
  CostModel model;
  REQUIRE(CostModel::parse(second + "all_gather 2 pcie blocks:raw 1000:7\nall_gather 2 pcie blocks:window 1000:5\n"
                                    "all_gather 2 pcie blocks:window/incompressible 1000:9\n"
                                    "all_gather 2 pcie nccl:default 1000:8\n",
                           "the test", &model) == NCAST_OK);
  CHECK(model.kernels() == "0123456789abcdef");
  CHECK(model.shared_bytes() == most_shared_bytes);
  CHECK(model_of("shared_kib 99\n" + gathers).shared_bytes() == 99 << 10);
  CHECK(describe_mismatch(model, Link::pcie) ==
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

  const auto rejected = [&](const std::string& line, const std::string& why) {
    CHECK(rejection(second + line + "\n") == "some.costs, line 3: " + why);
  };
  rejected("all_gather 2 peer blocks:raw 1:1",
           "'peer' is not a link: nvlink, pcie, host, shm, network, gpu_network or two_levels");
  rejected("all_gather 2 shm blocks:raw 1:1", "'blocks:raw' is not a candidate on the link shm");
  rejected("all_gather 2 nvlink frames:raw 1:1", "'frames:raw' is not a candidate on the link nvlink");
  rejected("all_gather 1025 shm frames:raw 1:1", "'1025' is not a number of ranks, 2 to 1024");
  rejected("all_gather 2 nvlink plan: 1:1", "'plan:' is not a candidate");
  rejected("all_gather 2 nvlink plan:a/b 1:1", "'plan:a/b' is not a candidate");
  rejected("all_gather 2 nvlink raw 1:1", "'raw' is not a candidate");
  rejected("all_gather 2 nvlink blocks:window/random 1:1", "'blocks:window/random' is not a candidate");
  CHECK(rejection(second + "all_gather 2 host blocks:raw 1:1\n") ==
        "some.costs: there is no line 'all_gather 2 host blocks:window'");
}

TEST_CASE("a machine without peer access has times of NCCL for any number of ranks, and PCIe uses them") {
  CostModel model;
  const std::string lines = " blocks:raw 1000:7 2000:14\n", codec = " blocks:window 1000:5 2000:10\n",
                    nccl_lines = " nccl 1000:8 2000:16\n";
  std::string text = "narrowcast-costs 2 a machine\n";
  for (const std::string where : {"all_gather 2 host", "all_gather 2 nvlink"})
    for (const std::string& what : {lines, codec, nccl_lines}) text += where + what;
  REQUIRE(CostModel::parse(text, "the test", &model) == NCAST_OK);
  const auto predict = [&](size_t candidate, int ranks, Link link) {
    return model.predict(Operation::all_gather, candidate, 1000, ranks, link).value_or(0);
  };
  CHECK(predict(index_of("nccl"), 3, Link::host) == 16);  // twice the traffic
  CHECK(predict(index_of("nccl"), 3, Link::pcie) == 16);
  CHECK(predict(index_of("nccl"), 3, Link::nvlink) == 0);
  CHECK(predict(raw, 3, Link::pcie) == predict(raw, 3, Link::host));
}

TEST_CASE("a model says when the times of a link are those of another one") {
  const CostModel model = parsed("narrowcast-costs 2 a machine\nkernels " + std::string(kernels_hash()) +
                                 "\nall_gather 2 host blocks:raw 1000:7\nall_gather 2 host blocks:window 1000:5\n");
  CHECK(describe_mismatch(model, Link::host).empty());
  CHECK(describe_mismatch(model, Link::pcie) == "the times are those of another link, host");
  CHECK(model.is_measured(Link::host));
  CHECK_FALSE(model.is_measured(Link::pcie));
}

TEST_CASE("by default, long calls without peer access are compressed and predicted to be faster than NCCL") {
  for (const Link link : {Link::host, Link::pcie}) {
    for (const Operation operation : {Operation::send, Operation::broadcast, Operation::all_gather,
                                      Operation::all_to_all, Operation::reduce_scatter, Operation::all_reduce}) {
      for (const int ranks : {2, 8}) {
        CAPTURE(name_of(link));
        CAPTURE(name_of(operation));
        CAPTURE(ranks);
        const CallShape shape{operation, NCAST_BFLOAT16, NCAST_CODEC_AUTO, 64 << 20, ranks, link};
        const Decision decision = decide(shape, {CostModel::shipped()});
        CHECK(decision.codec == NCAST_CODEC_WINDOW);
        CHECK(compare(decision, true).reason == nullptr);
        CHECK(compare(decision, false).reason == nullptr);
      }
    }
  }
}

TEST_CASE("plans are measured for one operation, number of ranks and link") {
  const CostModel model = parsed(
      "narrowcast-costs 2 a machine\nkernels unknown\nall_gather 4 shm frames:raw 1000:7 2000:14\n"
      "all_gather 4 shm plan:ring 1000:5 2000:10\nall_gather 4 shm plan:mine@12.x-y:window 1000:3\n");
  const auto measured = [&](const char* name, Operation operation = Operation::all_gather, int ranks = 4,
                            Link link = Link::shared_memory) {
    return model.measured(operation, name, 2000, ranks, link).value_or(0);
  };
  CHECK(describe_mismatch(model, Link::shared_memory) ==
        "the cost model does not say which kernels it was measured on");
  CHECK(measured("frames:raw") == 14);
  CHECK(measured("plan:ring") == 10);
  CHECK(measured("plan:mine@12.x-y:window") == doctest::Approx(6));
  CHECK(measured("plan:tree") == 0);
  CHECK(measured("plan:ring", Operation::all_to_all) == 0);
  CHECK(measured("plan:ring", Operation::all_gather, 8) == 0);
  CHECK(measured("plan:ring", Operation::all_gather, 4, Link::nvlink) == 0);
  CHECK(model.has_plans(Link::shared_memory));
  CHECK(!model.has_plans(Link::nvlink));
  const std::string second = "narrowcast-costs 2 a machine\n";
  CHECK(rejection(second + "all_gather 4 shm plan:ring 1:1\n") ==
        "some.costs: there is no line 'all_gather 4 shm frames:raw'");
  CHECK(rejection(second + "all_gather 4 shm plan:ring 1:1\nall_gather 4 shm plan:ring 1:1\n") ==
        "some.costs, line 3: the curve is given twice");
}

TEST_CASE("the built-in model says which kernels it was measured on") {
  CHECK(CostModel::shipped().kernels().size() == std::string(kernels_hash()).size());
}

}  // namespace
}  // namespace narrowcast::select
