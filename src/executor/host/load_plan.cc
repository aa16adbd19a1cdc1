#include "executor/host/load_plan.h"

#include <utility>

#include "executor/host/launch.h"
#include "executor/host/plans.h"
#include "executor/plan_agreement.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

class HostPlan final : public LoadedPlan {
 public:
  HostPlan(Communicator& comm, std::shared_ptr<const ProvedPlan> plan)
      : comm_(comm), in_place_(plan->plan.in_place), plan_(std::move(plan)) {}

  ncast_status load() override {
    const ncast_status prepared = comm_.plans->load(std::move(plan_), &number_);
    const ncast_status status = agree_on_plan(comm_, PlanReadiness::of(0, prepared));
    if (status != NCAST_OK && prepared == NCAST_OK) comm_.plans->unload(number_);
    return status;
  }

  ncast_status run(const Call& call) override {
    Call own = call;
    own.plan = number_;
    if (ncast_status status = check_in_place(own)) return status;
    return launch({own});
  }

  void assign_to(Call* call) override {
    call->chosen = this;
    call->plan = number_;
  }

  ncast_status release() override {
    const ncast_status status = comm_.wait_until_idle();
    comm_.plans->unload(number_);
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
  const plan::InPlace in_place_;
  std::shared_ptr<const ProvedPlan> plan_;  // until it is loaded
  uint32_t number_ = 0;                     // then
};

}  // namespace

ncast_status prepare_plan(Communicator& comm, const plan::Plan& plan, const plan::verify::Report& proof, ncast_redop op,
                          std::unique_ptr<LoadedPlan>* prepared) {
  if (op == NCAST_AVG && !proof.can_average) {
    return fail(NCAST_INVALID_ARGUMENT,
                "the plan cannot average: one of its steps completes some of its chunks, but not all");
  }
  *prepared = std::make_unique<HostPlan>(comm, std::make_shared<ProvedPlan>(plan, proof));
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
