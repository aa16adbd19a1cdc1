// Decisions about calls of two levels. No GPU is needed.
#include "select/two_levels.h"

#include <memory>
#include <vector>

#include "models.h"
#include "select/decider.h"

namespace narrowcast::select::testing {
namespace {

// Two steps, of which the one between hosts takes a nanosecond for each byte and is encoded if `auto` is allowed.
class Levels final : public TwoLevels {
 public:
  explicit Levels(bool are_alike) : are_alike_(are_alike) {}
  bool is_on_gpus() const override { return true; }
  bool overlaps() const override { return false; }
  std::vector<Step> steps_of(const CallShape& shape) const override {
    if (!are_alike_) return {};
    Step within{false, 0, shape, {}}, between{true, 0, shape, {}};
    within.decision.codec = NCAST_CODEC_WINDOW;
    within.decision.predicted = {10, 0};
    between.decision.codec = shape.codec == NCAST_CODEC_AUTO ? NCAST_CODEC_WINDOW : NCAST_CODEC_RAW;
    between.decision.predicted = {static_cast<double>(shape.bytes) / 1e3, static_cast<double>(shape.bytes) / 1e3};
    return {within, between};
  }

 private:
  const bool are_alike_;
};

const std::string measured =
    "all_gather 16 two_levels steps 1000:20 1000000:2000\n"
    "all_gather 16 two_levels nccl 1000:5 1000000:3000\n";

Decision decision_of(const std::string& lines, bool are_alike, uint64_t bytes, ncast_codec codec = NCAST_CODEC_AUTO) {
  Decider decider({.ranks = 16, .link = Link::two_levels}, model_of(lines), std::make_shared<Levels>(are_alike));
  return decider.decide(decider.shape_of(Operation::all_gather, NCAST_BFLOAT16, codec, bytes));
}

TEST_CASE("a call takes the sum of the times of its steps, with the codec between hosts") {
  const Decision decision = decision_of("", true, 90000);
  CHECK(decision.candidate == "steps");
  CHECK(decision.predicted.typical == doctest::Approx(100));
  CHECK(decision.codec == NCAST_CODEC_WINDOW);
  CHECK(decision_of("", true, 90000, NCAST_CODEC_RAW).codec == NCAST_CODEC_RAW);
}

TEST_CASE("without measured times of NCCL no call is faster") {
  CHECK(compare(decision_of("", true, 90000), true).reason != nullptr);
  CHECK(compare(decision_of("", false, 90000), true).reason != nullptr);
}

TEST_CASE("measured calls precede sums of steps") {
  CHECK(decision_of(measured, true, 1000000).predicted.typical == doctest::Approx(2000));
  CHECK(decision_of(measured, false, 1000000).predicted.typical == doctest::Approx(2000));
  CHECK(compare(decision_of(measured, true, 1000000), true).reason == nullptr);
  CHECK(compare(decision_of(measured, true, 1000), true).reason != nullptr);
}

TEST_CASE("the times of other numbers of ranks are not those of this one") {
  Decider decider({.ranks = 12, .link = Link::two_levels}, model_of(measured), std::make_shared<Levels>(false));
  const CallShape shape = decider.shape_of(Operation::all_gather, NCAST_BFLOAT16, NCAST_CODEC_AUTO, 1000000);
  CHECK_FALSE(decider.decide(shape).predicted.is_known());
  CHECK_FALSE(decider.decide(shape).nccl.is_known());
}

TEST_CASE("a model of two levels needs the times of both") {
  CostModel model;
  CHECK(CostModel::parse(heading + "all_gather 16 two_levels nccl 1000:5\n", "the test", &model) ==
        NCAST_INVALID_ARGUMENT);
  CHECK(CostModel::parse(heading + "all_gather 16 nvlink nccl 1000:5\n", "the test", &model) == NCAST_INVALID_ARGUMENT);
  CHECK(CostModel::parse(heading + "all_gather 16 two_levels blocks:raw 1000:5\n", "the test", &model) ==
        NCAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace narrowcast::select::testing
