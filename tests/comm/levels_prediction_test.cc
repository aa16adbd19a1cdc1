// Predictions for GPUs in two levels. No GPU is needed.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "comm/levels/prediction.h"
#include "doctest/doctest.h"
#include "narrowcast/comm.h"

namespace narrowcast::comm {
namespace {

using operation::Operation;
using select::CostModel;
using select::Decider;
using select::Link;

constexpr int hosts = 2, of_host = 8;
constexpr Operation collectives[] = {Operation::broadcast,  Operation::reduce,         Operation::gather,
                                     Operation::scatter,    Operation::all_gather,     Operation::all_to_all,
                                     Operation::all_reduce, Operation::reduce_scatter, Operation::send};

struct Hosts {
  explicit Hosts(bool are_alike = true, bool overlaps = true)
      : decider({.ranks = hosts * of_host, .link = Link::two_levels}, CostModel(),
                levels_of({hosts, of_host, 0, 0}, false, within, between, are_alike, overlaps)) {}

  select::Decision decide(Operation operation, uint64_t bytes, ncast_codec codec = NCAST_CODEC_AUTO,
                          ncast_dtype dtype = NCAST_BFLOAT16) {
    return decider.decide(decider.shape_of(operation, dtype, codec, bytes));
  }

  std::shared_ptr<Decider> within =
      std::make_shared<Decider>(select::CommTraits{.ranks = of_host, .link = Link::nvlink}, CostModel::shipped());
  std::shared_ptr<Decider> between =
      std::make_shared<Decider>(select::CommTraits{.ranks = hosts, .link = Link::gpu_network}, CostModel::shipped());
  Decider decider;
};

TEST_CASE("every call of GPUs in two levels has a predicted time, which does not shrink with its bytes") {
  Hosts comm;
  for (const Operation operation : collectives) {
    CAPTURE(name_of(operation));
    double before = 0;
    for (uint64_t bytes = 1 << 10; bytes <= uint64_t{1} << 30; bytes *= 32) {
      const select::Decision decision = comm.decide(operation, bytes);
      CHECK(decision.predicted.typical >= before);
      CHECK(decision.predicted.typical > 0);
      CHECK(decision.predicted.incompressible >= decision.predicted.typical);
      before = decision.predicted.typical;
    }
  }
}

TEST_CASE("long calls of GPUs in two levels are encoded between hosts, where values are not forced to be raw") {
  Hosts comm;
  for (const Operation operation : collectives) {
    CAPTURE(name_of(operation));
    CHECK(comm.decide(operation, 64 << 20).codec == NCAST_CODEC_WINDOW);
    CHECK(comm.decide(operation, 64 << 20, NCAST_CODEC_RAW).codec == NCAST_CODEC_RAW);
    CHECK(comm.decide(operation, 64 << 20).predicted.typical <
          comm.decide(operation, 64 << 20, NCAST_CODEC_RAW).predicted.typical);
  }
  CHECK(comm.decide(Operation::all_gather, 64 << 20, NCAST_CODEC_AUTO, NCAST_INT32).codec == NCAST_CODEC_RAW);
}

TEST_CASE("the steps of an all-reduce are those that run") {
  const Hosts comm;
  const select::CallShape shape =
      comm.decider.shape_of(Operation::all_reduce, NCAST_BFLOAT16, NCAST_CODEC_AUTO, 4 << 20);
  struct Expected {
    bool is_between;
    Operation operation;
    ncast_dtype dtype;
    uint64_t bytes;
  };
  constexpr uint64_t count = (4 << 20) / 2;
  const Expected expected[] = {{false, Operation::reduce_scatter, NCAST_FLOAT32, 4 * count / of_host},
                               {true, Operation::reduce_scatter, NCAST_FLOAT32, 4 * count / of_host / hosts},
                               {true, Operation::all_gather, NCAST_BFLOAT16, 2 * count / of_host / hosts},
                               {false, Operation::all_gather, NCAST_BFLOAT16, 2 * count / of_host}};
  const std::vector<select::Step> steps = comm.decider.levels()->steps_of(shape);
  REQUIRE(steps.size() == std::size(expected));
  double sum = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    CAPTURE(i);
    CHECK(steps[i].is_between == expected[i].is_between);
    CHECK(steps[i].shape.operation == expected[i].operation);
    CHECK(steps[i].shape.dtype == expected[i].dtype);
    CHECK(steps[i].shape.bytes == expected[i].bytes);
    CHECK(steps[i].shape.ranks == (expected[i].is_between ? hosts : of_host));
    sum += steps[i].decision.predicted.typical;
  }
  CHECK(Hosts().decide(Operation::all_reduce, 4 << 20).predicted.typical == doctest::Approx(sum));
}

TEST_CASE("parts of a long call move within hosts while others move between them") {
  const Hosts comm;
  for (const Operation operation : {Operation::all_reduce, Operation::all_gather, Operation::broadcast}) {
    CAPTURE(name_of(operation));
    const select::CallShape shape = comm.decider.shape_of(operation, NCAST_BFLOAT16, NCAST_CODEC_AUTO, 256 << 20);
    double levels[2] = {};
    for (const select::Step& step : comm.decider.levels()->steps_of(shape))
      levels[step.is_between] += step.decision.predicted.typical;
    CHECK(Hosts(true, false).decide(operation, 256 << 20).predicted.typical == doctest::Approx(levels[0] + levels[1]));
    const double predicted = Hosts().decide(operation, 256 << 20).predicted.typical;
    CHECK(predicted >= std::max(levels[0], levels[1]));
    CHECK(predicted < levels[0] + levels[1]);
  }
}

TEST_CASE("hosts that would predict different times predict none") {
  Hosts comm(false);
  CHECK_FALSE(comm.decide(Operation::all_gather, 64 << 20).predicted.is_known());
  CHECK(select::compare(comm.decide(Operation::all_gather, 64 << 20), true).reason != nullptr);
}

}  // namespace
}  // namespace narrowcast::comm
