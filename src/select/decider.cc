#include "select/decider.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "select/two_levels.h"

namespace narrowcast::select {

Decider::Decider(const CommTraits& traits, CostModel costs, std::shared_ptr<const TwoLevels> levels)
    : traits_(traits), levels_(std::move(levels)) {
  auto basis = std::make_shared<Basis>();
  basis->costs = std::make_shared<CostModel>(std::move(costs));
  if (traits_.link == Link::shared_memory) basis->list = builder_candidates();
  replace(std::move(basis));
}

bool Decider::is_on_gpus() const {
  return levels_ != nullptr ? levels_->is_on_gpus() : !is_between_processes(traits_.link);
}

Decision Decider::decide(const CallShape& shape) {
  // Multiplicative hashing: 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
  const uint64_t hash =
      (shape.bytes << 8 | static_cast<uint64_t>(shape.operation) << 4 | shape.dtype) * 0x9e3779b97f4a7c15;
  std::unique_lock lock(mutex_);
  std::optional<Entry>& entry = recent_[(hash >> 32) % recent_.size()];
  if (entry && entry->shape == shape) return entry->decision;
  // Not under the lock: the user's selector may ask for explanations.
  const std::shared_ptr<const Basis> basis = basis_;
  const uint64_t version = version_;
  lock.unlock();
  const Decision decision = select::decide(shape, policy_of(*basis));
  lock.lock();
  if (version == version_) entry = Entry{shape, decision};
  return decision;
}

std::vector<Alternative> Decider::alternatives_of(const CallShape& shape, const Decision& decision) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<const Basis> basis = basis_;
  lock.unlock();
  return select::alternatives_of(shape, decision, policy_of(*basis));
}

void Decider::replace(std::shared_ptr<const Basis> basis) {
  basis_ = std::move(basis);
  ++version_;
  recent_ = {};
  const auto is_added = [](const auto& plan) { return plan->loaded != 0; };
  distinguishes_ = basis_->selector || std::ranges::any_of(basis_->list, is_added);
  chooses_ = distinguishes_ || basis_->costs->has_plans(traits_.link);
}

void Decider::add_plan(PlanCandidate plan) {
  const std::lock_guard lock(mutex_);
  auto basis = std::make_shared<Basis>(*basis_);
  basis->list.push_back(std::make_shared<PlanCandidate>(std::move(plan)));
  replace(std::move(basis));
}

void Decider::remove_plan(uint32_t loaded) {
  const std::lock_guard lock(mutex_);
  auto basis = std::make_shared<Basis>(*basis_);
  const auto is_removed = [&](const auto& plan) { return plan->loaded == loaded; };
  std::ranges::copy_if(basis->list, std::back_inserter(removed_), is_removed);
  std::erase_if(basis->list, is_removed);
  replace(std::move(basis));
}

void Decider::set_selector(PlanSelector selector) {
  const std::lock_guard lock(mutex_);
  auto basis = std::make_shared<Basis>(*basis_);
  basis->selector = std::move(selector);
  replace(std::move(basis));
}

void Decider::set_costs(CostModel costs) {
  const std::lock_guard lock(mutex_);
  auto basis = std::make_shared<Basis>(*basis_);
  basis->costs = std::make_shared<CostModel>(std::move(costs));
  replace(std::move(basis));
}

}  // namespace narrowcast::select
