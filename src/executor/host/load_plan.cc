#include "executor/host/load_plan.h"

#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "executor/host/launch.h"
#include "executor/host/plans.h"
#include "plan/json/json.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

// What a rank contributes to an exchange. A rank with an error still takes part, so that the others do not wait for it.
struct Contribution {
  uint64_t hash;  // of the plan, the type and the reduction
  ncast_status status;
  char message[400];  // if status is not OK

  void set_status(ncast_status own) {
    status = own;
    if (own != NCAST_OK) std::snprintf(message, sizeof message, "%s", ncast_last_error());
  }
};

// FNV-1a.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3u;
  return hash;
}

// Errors: MISMATCH if the ranks load different plans; the error of this rank or of another one.
ncast_status agree(Communicator& comm, const Contribution& own) {
  std::vector<Contribution> all(static_cast<size_t>(comm.ranks()));
  if (ncast_status status = comm.exchange(&own, sizeof own, all.data())) return status;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].hash == all[0].hash) continue;
    return fail(NCAST_MISMATCH,
                "ranks load different plans, types or reductions: rank 0 those with hash %016" PRIx64
                ", rank %zu %016" PRIx64,
                all[0].hash, rank, all[rank].hash);
  }
  if (own.status != NCAST_OK) return fail(own.status, "%s", own.message);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].status == NCAST_OK) continue;
    return fail(NCAST_REMOTE_ERROR, "rank %zu cannot load the plan: %.*s", rank,
                static_cast<int>(sizeof all[rank].message), all[rank].message);
  }
  return NCAST_OK;
}

// Errors that all ranks find.
ncast_status check(const Communicator& comm, const plan::Plan& plan, const plan::verify::Report& proof,
                   ncast_redop op) {
  if (plan.rank_count() != comm.ranks()) {
    return fail(NCAST_INVALID_ARGUMENT, "the plan has %d ranks, and the communicator %d", plan.rank_count(),
                comm.ranks());
  }
  if (op == NCAST_AVG && !proof.can_average) {
    return fail(NCAST_INVALID_ARGUMENT,
                "the plan cannot average: one of its steps completes some of its chunks, but not all");
  }
  return NCAST_OK;
}

class HostPlan final : public LoadedPlan {
 public:
  HostPlan(Communicator& comm, uint32_t number, const plan::Plan& plan)
      : comm_(comm), plans_(comm.plans), number_(number), in_place_(plan.in_place) {}

  ncast_status run(const Call& call) override {
    // Another communicator may have the same address by now.
    if (plans_.expired()) return fail(NCAST_INVALID_ARGUMENT, "the communicator has been destroyed");
    Call own = call;
    own.plan = number_;
    if (ncast_status status = check_in_place(own)) return status;
    return launch({own});
  }

  ncast_status release() override {
    const std::shared_ptr<Plans> plans = plans_.lock();
    if (plans == nullptr) return NCAST_OK;
    const ncast_status status = comm_.wait_until_idle();
    plans->unload(number_);
    return status;
  }

 private:
  ncast_status check_in_place(const Call& call) const {
    const auto ranks = static_cast<uint64_t>(comm_.ranks());
    const bool is_root = comm_.rank() == call.peer;
    const operation::Description& row = describe(call.operation);
    const uint64_t sends = pieces(row.send, ranks, is_root);
    const uint64_t receives = pieces(row.recv, ranks, is_root);
    if (sends == 0 || receives == 0 || call.count == 0) return NCAST_OK;
    const uint64_t own_bytes = static_cast<uint64_t>(comm_.rank()) * call.count * ncast_dtype_bytes(call.dtype);
    const bool is_in_place = static_cast<const std::byte*>(call.send) + (sends > 1 ? own_bytes : 0) ==
                             static_cast<std::byte*>(call.recv) + (receives > 1 ? own_bytes : 0);
    if (is_in_place && in_place_ == plan::InPlace::no)
      return fail(NCAST_INVALID_ARGUMENT, "the plan does not work in place");
    if (!is_in_place && in_place_ == plan::InPlace::yes)
      return fail(NCAST_INVALID_ARGUMENT, "the plan works in place only");
    return NCAST_OK;
  }

  Communicator& comm_;
  const std::weak_ptr<Plans> plans_;
  const uint32_t number_;
  const plan::InPlace in_place_;
};

}  // namespace

ncast_status load_plan(Communicator& comm, const plan::Plan& plan, const plan::verify::Report& proof, ncast_dtype dtype,
                       ncast_redop op, std::unique_ptr<LoadedPlan>* loaded) {
  Contribution own = {};
  own.hash = hash_of(plan::json::write(plan) + std::to_string(dtype) + "," + std::to_string(op));
  own.set_status(check(comm, plan, proof, op));
  if (ncast_status status = agree(comm, own)) return status;
  uint32_t number = 0;
  auto proved = std::make_shared<ProvedPlan>(ProvedPlan{plan, proof.completing});
  const ncast_status prepared = comm.plans->load(std::move(proved), &number);
  own.set_status(prepared);
  if (ncast_status status = agree(comm, own)) {
    if (prepared == NCAST_OK) comm.plans->unload(number);
    return status;
  }
  *loaded = std::make_unique<HostPlan>(comm, number, plan);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
