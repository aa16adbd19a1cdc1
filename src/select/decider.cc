#include "select/decider.h"

#include <algorithm>
#include <iterator>

namespace narrowcast::select {

Decider::Decider(const CommTraits& traits, CostModel costs) : traits_(traits), costs_(std::move(costs)) {
  auto plans = std::make_shared<Plans>();
  if (traits_.link == Link::shared_memory) plans->list = builder_candidates();
  replace(std::move(plans));
}

Decision Decider::decide(const CallShape& shape) {
  // Multiplicative hashing: 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
  const uint64_t hash =
      (shape.bytes << 8 | static_cast<uint64_t>(shape.operation) << 4 | shape.dtype) * 0x9e3779b97f4a7c15;
  std::unique_lock lock(mutex_);
  std::optional<Entry>& entry = recent_[(hash >> 32) % recent_.size()];
  if (entry && entry->shape == shape) return entry->decision;
  // Not under the lock: the user's selector may ask for explanations.
  const std::shared_ptr<const Plans> plans = plans_;
  const uint64_t version = version_;
  lock.unlock();
  const Decision decision = select::decide(shape, policy_of(*plans));
  lock.lock();
  if (version == version_) entry = Entry{shape, decision};
  return decision;
}

std::vector<Alternative> Decider::alternatives_of(const CallShape& shape, const Decision& decision) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<const Plans> plans = plans_;
  lock.unlock();
  return select::alternatives_of(shape, decision, policy_of(*plans));
}

void Decider::replace(std::shared_ptr<const Plans> plans) {
  plans_ = std::move(plans);
  ++version_;
  recent_ = {};
  const auto is_added = [](const auto& plan) { return plan->loaded != 0; };
  distinguishes_ = plans_->selector || std::ranges::any_of(plans_->list, is_added);
  chooses_ = distinguishes_ || costs_.has_plans(traits_.link);
}

void Decider::add_plan(PlanCandidate plan) {
  const std::lock_guard lock(mutex_);
  auto plans = std::make_shared<Plans>(*plans_);
  plans->list.push_back(std::make_shared<PlanCandidate>(std::move(plan)));
  replace(std::move(plans));
}

void Decider::remove_plan(uint32_t loaded) {
  const std::lock_guard lock(mutex_);
  auto plans = std::make_shared<Plans>(*plans_);
  const auto is_removed = [&](const auto& plan) { return plan->loaded == loaded; };
  std::ranges::copy_if(plans->list, std::back_inserter(removed_), is_removed);
  std::erase_if(plans->list, is_removed);
  replace(std::move(plans));
}

void Decider::set_selector(PlanSelector selector) {
  const std::lock_guard lock(mutex_);
  auto plans = std::make_shared<Plans>(*plans_);
  plans->selector = std::move(selector);
  replace(std::move(plans));
}

}  // namespace narrowcast::select
