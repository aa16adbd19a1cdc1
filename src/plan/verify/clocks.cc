#include "plan/verify/clocks.h"

#include <algorithm>
#include <utility>

namespace narrowcast::plan::verify {

std::vector<uint32_t>& Row::own(size_t components) {
  if (epochs_.use_count() == 1) return epochs_->values;
  spend(components / 4);
  auto copy = std::make_shared<Epochs>();
  copy->memory.grow(sizeof(Epochs) + components * sizeof(uint32_t));
  if (epochs_ == nullptr)
    copy->values.resize(components);
  else
    copy->values = epochs_->values;
  epochs_ = std::move(copy);
  return epochs_->values;
}

void Row::raise(size_t component, uint32_t epoch, size_t components) {
  if ((*this)[component] < epoch) own(components)[component] = epoch;
}

void Row::join(const Row& other) {
  if (epochs_ == other.epochs_ || other.epochs_ == nullptr) return;
  if (epochs_ == nullptr) {
    epochs_ = other.epochs_;
    return;
  }
  const std::vector<uint32_t>&present = epochs_->values, &from = other.epochs_->values;
  spend(from.size() / 4);
  uint32_t behind = 0, ahead = 0;  // 0: in no component
  for (size_t i = 0; i < from.size(); ++i) {
    const uint32_t later = std::max(present[i], from[i]);
    behind |= later ^ present[i];
    ahead |= later ^ from[i];
  }
  if (behind == 0) return;
  if (ahead == 0) {
    epochs_ = other.epochs_;
    return;
  }
  std::vector<uint32_t>& joined = own(from.size());
  for (size_t i = 0; i < from.size(); ++i) joined[i] = std::max(joined[i], from[i]);
}

}  // namespace narrowcast::plan::verify
