#include "executor/plan_agreement.h"

#include <cinttypes>
#include <cstdio>
#include <vector>

#include "status/error.h"

namespace narrowcast::executor {

PlanReadiness PlanReadiness::of(uint64_t hash, ncast_status own) {
  PlanReadiness readiness;
  readiness.hash = hash;
  readiness.status = own;
  if (own != NCAST_OK) std::snprintf(readiness.reason, sizeof readiness.reason, "%s", ncast_last_error());
  return readiness;
}

ncast_status agree_on_plan(ncast_comm& comm, const PlanReadiness& own) {
  std::vector<PlanReadiness> all(static_cast<size_t>(comm.ranks()));
  const ncast_status exchanged = comm.exchange(&own, sizeof own, all.data());
  // First: because of this error, other ranks may have aborted the communicator.
  if (own.status != NCAST_OK) return fail(own.status, "%s", own.reason);
  if (exchanged != NCAST_OK) return exchanged;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].status == NCAST_OK) continue;
    return fail(NCAST_REMOTE_ERROR, "rank %zu cannot load the plan: %.*s", rank,
                static_cast<int>(sizeof all[rank].reason), all[rank].reason);
  }
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].hash == all[0].hash) continue;
    return fail(NCAST_MISMATCH,
                "ranks load different plans, types or reductions: rank 0 those with hash %016" PRIx64
                ", rank %zu %016" PRIx64,
                all[0].hash, rank, all[rank].hash);
  }
  return NCAST_OK;
}

ncast_status decline_plan(ncast_comm& comm, const char* reason) {
  const PlanReadiness own = PlanReadiness::of(0, fail(NCAST_INVALID_ARGUMENT, "%s", reason));
  std::vector<PlanReadiness> all(static_cast<size_t>(comm.ranks()));
  return comm.exchange(&own, sizeof own, all.data());
}

}  // namespace narrowcast::executor
