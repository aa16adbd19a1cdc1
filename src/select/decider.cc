#include "select/decider.h"

namespace narrowcast::select {

Decision Decider::decide(const CallShape& shape) {
  // Multiplicative hashing: 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
  const uint64_t hash =
      (shape.bytes << 8 | static_cast<uint64_t>(shape.operation) << 4 | shape.dtype) * 0x9e3779b97f4a7c15;
  const std::lock_guard lock(mutex_);
  std::optional<Entry>& entry = recent_[(hash >> 32) % recent_.size()];
  if (!entry || entry->shape != shape) entry = Entry{shape, select::decide(shape, {costs_, traits_.transport})};
  return entry->decision;
}

}  // namespace narrowcast::select
