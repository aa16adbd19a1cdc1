#include "comm/levels/prediction.h"

#include <utility>
#include <vector>

#include "codec/codec.h"
#include "comm/levels/steps.h"
#include "operation/operation.h"
#include "operation/scaled_sum.h"

namespace narrowcast::comm {
namespace {

using executor::Call;

// Lists the steps instead of running them.
class Listing final : public StepTaker {
 public:
  Listing(select::Decider& within, select::Decider& between, ncast_redop redop)
      : within_(within), between_(between), redop_(redop) {}

  ncast_status take(Call call, bool is_between, int slot) override {
    select::Decider& decider = is_between ? between_ : within_;
    const ncast_redop redop = operation::reduces(call.operation) ? redop_ : NCAST_SUM;
    select::CallShape shape = decider.shape_of(call.operation, call.dtype, codec::canonical(call.codec),
                                               call.count * ncast_dtype_bytes(call.dtype), redop, call.peer);
    steps_.push_back({is_between, slot, shape, decider.decide(shape)});
    return NCAST_OK;
  }
  executor::LocalWork* work() override { return nullptr; }
  bool overlaps() const override { return false; }
  void* area(int number) override { return &areas_[number]; }
  std::vector<select::Step> steps() && { return std::move(steps_); }

 private:
  select::Decider &within_, &between_;
  const ncast_redop redop_;
  char areas_[areas] = {};  // nothing is read or written
  std::vector<select::Step> steps_;
};

class Prediction final : public select::TwoLevels {
 public:
  Prediction(const LevelShape& shape, bool rounds_partial_sums, std::shared_ptr<select::Decider> within,
             std::shared_ptr<select::Decider> between, bool are_alike, bool overlaps)
      : groups_(shape.groups),
        of_group_(shape.of_group),
        rounds_partial_sums_(rounds_partial_sums),
        are_alike_(are_alike),
        overlaps_(overlaps),
        within_(std::move(within)),
        between_(std::move(between)) {}

  bool is_on_gpus() const override { return within_->is_on_gpus(); }
  bool overlaps() const override { return overlaps_; }

  std::vector<select::Step> steps_of(const select::CallShape& shape) const override {
    if (!are_alike_) return {};
    // Averages and factors are local work.
    const bool is_sum = shape.redop == NCAST_AVG || shape.redop == operation::scaled_sum;
    Listing listing(*within_, *between_, is_sum ? NCAST_SUM : shape.redop);
    char nothing = 0;
    const Call call{.operation = shape.operation,
                    .send = &nothing,
                    .recv = &nothing,
                    .count = shape.bytes / ncast_dtype_bytes(shape.dtype),
                    .dtype = shape.dtype,
                    .codec = shape.codec,
                    .result_codec = shape.result_codec};
    if (operation::is_point_to_point(shape.operation))
      static_cast<void>(listing.take(call, true, 0));
    else  // which root it is does not matter
      static_cast<void>(take_steps({groups_, of_group_, 0, 0}, rounds_partial_sums_, listing, call));
    return std::move(listing).steps();
  }

 private:
  const int groups_, of_group_;
  const bool rounds_partial_sums_, are_alike_, overlaps_;
  const std::shared_ptr<select::Decider> within_, between_;
};

}  // namespace

std::shared_ptr<const select::TwoLevels> levels_of(const LevelShape& shape, bool rounds_partial_sums,
                                                   std::shared_ptr<select::Decider> within,
                                                   std::shared_ptr<select::Decider> between, bool are_alike,
                                                   bool overlaps) {
  return std::make_shared<Prediction>(shape, rounds_partial_sums, std::move(within), std::move(between), are_alike,
                                      overlaps);
}

}  // namespace narrowcast::comm
