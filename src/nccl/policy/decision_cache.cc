#include "nccl/policy/decision_cache.h"

namespace narrowcast::nccl {

Decision RecentDecisions::on(const Call& call, const CommunicatorTraits& comm, ncast_comm* engine_comm,
                             bool has_windows) {
  const Key key{.operation = call.operation,
                .dtype = call.dtype,
                .count = call.count,
                .users_reduction = call.redop >= first_user_reduction,
                .configured = call.config != nullptr,
                .has_windows = has_windows,
                .engine_comm = engine_comm};
  const uint64_t mixed =
      (uint64_t{call.count} << 16 ^ static_cast<uint64_t>(call.operation) << 8 ^ static_cast<uint64_t>(call.dtype)) *
      0x9e3779b97f4a7c15;  // 2^64 over the golden ratio, as Knuth hashes
  const std::lock_guard lock(mutex_);
  std::optional<Entry>& entry = entries_[(mixed >> 32) % entries_.size()];
  if (!entry || entry->key != key)
    entry = Entry{key, decide(settings(), call, comm, EnginePredictor(engine_comm, has_windows))};
  return entry->decision;
}

}  // namespace narrowcast::nccl
