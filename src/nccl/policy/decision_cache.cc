#include "nccl/policy/decision_cache.h"

namespace narrowcast::nccl {

Decision DecisionCache::decide(const Call& call, const CommunicatorTraits& comm, const EngineState& engine) {
  const Key key{.operation = call.operation,
                .dtype = call.dtype,
                .count = call.count,
                .is_user_reduction = call.redop >= first_user_reduction,
                .has_config = call.config != nullptr,
                .engine = engine};
  // Multiplicative hashing: 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
  const uint64_t hash =
      (uint64_t{call.count} << 16 ^ static_cast<uint64_t>(call.operation) << 8 ^ static_cast<uint64_t>(call.dtype)) *
      0x9e3779b97f4a7c15;
  const std::lock_guard lock(mutex_);
  std::optional<Entry>& entry = entries_[(hash >> 32) % entries_.size()];
  if (!entry || entry->key != key) entry = Entry{key, nccl::decide(settings(), call, comm, EnginePredictor(engine))};
  return entry->decision;
}

}  // namespace narrowcast::nccl
