// Times that a cost model derives from other measurements. No GPU is needed.
#include <string>

#include "doctest/doctest.h"
#include "models.h"
#include "select/packet_shape.h"

namespace narrowcast::select {
namespace {

using namespace testing;

TEST_CASE("calls that were not measured are predicted from the traffic on their busiest link") {
  const CostModel model =
      model_of(gathers + "all_gather 2 nvlink nccl 1000:5\nall_gather 2 nvlink nccl:default 1000:6\n" +
               "all_reduce 4 nvlink packets 1000:4 2000:8\nall_reduce 4 nvlink blocks:raw 1000:4 2000:8\n"
               "all_reduce 4 nvlink blocks:window 1000:4 2000:8\n");
  const auto predict = [&](Operation operation, size_t path, uint64_t bytes, int ranks) {
    return model.predict(operation, path, bytes, ranks, Link::nvlink).value_or(0);
  };
  const double as_measured = predict(Operation::all_gather, raw, 300000, 2);
  CHECK(predict(Operation::all_gather, raw, 100000, 4) == doctest::Approx(as_measured));
  CHECK(predict(Operation::broadcast, raw, 300000, 4) == doctest::Approx(as_measured));
  CHECK(predict(Operation::broadcast, packets, 3000, 4) ==
        doctest::Approx(predict(Operation::all_gather, packets, 9000, 2)));
  CHECK(predict(Operation::all_to_all_v, raw, 300000, 2) == doctest::Approx(as_measured));
  CHECK(predict(Operation::send, raw, 300000, 8) == doctest::Approx(as_measured));
  // The share of the bytes on a link is 2 (n - 1) / n: 1.5 for 4 ranks, 1 for 2.
  CHECK(predict(Operation::reduce, raw, 1800, 2) == doctest::Approx(4.8));
  CHECK(predict(Operation::reduce_scatter, raw, 1800, 2) == 0);
  CHECK(predict(Operation::all_gather, nccl, 1000, 2) == doctest::Approx(5));
  CHECK(predict(Operation::all_gather, nccl, 1000, 4) == 0);
  CHECK(predict(Operation::all_gather, nccl_default, 1000, 2) == doctest::Approx(6));
  CHECK(predict(Operation::all_gather, nccl_default, 1000, 4) == 0);
  CHECK(predict(Operation::broadcast, nccl, 1000, 2) == 0);
  CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::host) == std::nullopt);
}

TEST_CASE("the curve of the nearest number of ranks is used, or of the larger if two are equally near") {
  const auto model = [](const std::string& ranks) {
    std::string lines;
    for (size_t i = 0; i < ranks.size(); ++i) {
      // One time for all sizes, so that the curves differ only by the number of ranks.
      const std::string time = std::to_string(10 * (ranks[i] - '0'));
      for (const char* const path : {"raw", "window"})
        lines += "send " + ranks.substr(i, 1) + " nvlink blocks:" + path + " 1:" + time + " 1000000:" + time + "\n";
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
  CHECK(of_ranks("82", 5) == 80);  // in any order of the lines
  CHECK(of_ranks("82", 4) == 20);
  CHECK(of_ranks("246", 3) == 40);
  CHECK(of_ranks("246", 5) == 60);
  CHECK(of_ranks("246", 8) == 60);
  CHECK(of_ranks("3", 2) == 30);
}

TEST_CASE("NVLink and PCIe have their own curves, or use each other's if only one was measured") {
  const auto lines = [](const std::string& link, const std::string& time) {
    const std::string line = "all_gather 2 " + link + " blocks:";
    return line + "raw 1:" + time + "\n" + line + "window 1:" + time + "\n";
  };
  const auto check_times = [](const std::string& curves, int nvlink, int pcie) {
    const CostModel model = parsed("narrowcast-costs 2 a machine\n" + curves);
    CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::nvlink) == nvlink);
    CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::pcie) == pcie);
    CHECK(model.predict(Operation::all_gather, raw, 1, 2, Link::host) == std::nullopt);
  };
  check_times(lines("pcie", "7") + lines("nvlink", "3"), 3, 7);
  check_times(lines("pcie", "7"), 7, 7);
  check_times(lines("nvlink", "3"), 3, 3);
}

TEST_CASE("two shots that are derived from one shot take two messages, which are shorter") {
  // A microsecond for every thousand bytes on the link.
  const CostModel model = model_of(
      "all_reduce 2 nvlink packets 1000:1 100000000:100000\nall_reduce 2 nvlink blocks:raw 1:9\nall_reduce 2 nvlink "
      "blocks:window 1:9\n");
  const auto predict = [&](uint64_t bytes) {
    return model.predict(Operation::all_reduce, packets, bytes, 4, Link::nvlink).value_or(0) * 1000;
  };
  const uint64_t one_shot = most_one_shot_bytes(4, Link::nvlink);
  REQUIRE(3 * one_shot <= most_one_shot_bytes(2, Link::nvlink));
  CHECK(predict(one_shot) == doctest::Approx(3 * one_shot));
  CHECK(predict(one_shot + 1) == doctest::Approx(3 * one_shot));  // not less than a shorter call
  CHECK(predict(3 * one_shot) == doctest::Approx(2 * 3 * one_shot * 3 / 4));
}

}  // namespace
}  // namespace narrowcast::select
