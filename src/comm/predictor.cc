#include "comm/predictor.h"

#include <memory>
#include <string>

#include "comm/arguments.h"
#include "comm/plan_use.h"
#include "comm/question.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "plan/handle.h"
#include "status/error.h"
#include "status/sized_struct.h"

using namespace narrowcast;
using select::Decider;

namespace {

ncast_predictor* make(const std::shared_ptr<Decider>& decider, bool is_of_communicator) {
  // On the host backend no decision depends on costs.
  const std::string warning = decider->is_on_gpus() ? describe_mismatch(*decider->costs(), decider->traits().link) : "";
  return new ncast_predictor{decider, warning, is_of_communicator};
}

ncast_status compare(const char* function, const ncast_predictor* predictor, const comm::Question& question,
                     bool with_windows, ncast_comparison* comparison) {
  if (predictor == nullptr) return null_argument(function, "predictor");
  Decider& decider = *predictor->decider;
  select::CallShape shape{};
  if (ncast_status status = comm::shape_of(function, question, decider, &shape)) return status;
  const select::Decision decision = decider.decide(shape);
  const select::Comparison found = select::compare(decision, !with_windows);
  return fill_struct(function, "comparison",
                     ncast_comparison{.struct_bytes = sizeof(ncast_comparison),
                                      .faster = found.reason == nullptr,
                                      .microseconds = found.microseconds,
                                      .nccl_microseconds = found.nccl_microseconds,
                                      .reason = found.reason,
                                      .plan = decision.chosen == nullptr ? nullptr : decision.plan,
                                      .always = decision.chosen != nullptr && decision.chosen->always ? 1 : 0,
                                      .codec = decision.codec},
                     comparison);
}

}  // namespace

extern "C" {

ncast_status ncast_predictor_create(int ranks, const ncast_comm_config* config, ncast_predictor** predictor) {
  constexpr const char* function = "ncast_predictor_create";
  return guarded(function, [&] {
    if (predictor == nullptr) return null_argument(function, "predictor");
    *predictor = nullptr;
    std::shared_ptr<Decider> decider;
    if (ncast_status status = comm::assume_communicator(function, ranks, config, &decider)) return status;
    *predictor = make(decider, false);
    return NCAST_OK;
  });
}

ncast_status ncast_comm_predictor(ncast_comm* comm, ncast_predictor** predictor) {
  constexpr const char* function = "ncast_comm_predictor";
  return guarded(function, [&] {
    if (predictor == nullptr) return null_argument(function, "predictor");
    *predictor = nullptr;
    executor::CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    *predictor = make(comm->decider(), true);
    return NCAST_OK;
  });
}

ncast_status ncast_predictor_compare(const ncast_predictor* predictor, ncast_operation operation, uint64_t count,
                                     ncast_dtype dtype, ncast_codec codec, int with_windows,
                                     ncast_comparison* comparison) {
  constexpr const char* function = "ncast_predictor_compare";
  return guarded(function, [&] {
    return compare(function, predictor, {operation, count, dtype, codec}, with_windows != 0, comparison);
  });
}

ncast_status ncast_predictor_compare_call(const ncast_predictor* predictor, const ncast_plan_call* call,
                                          int with_windows, ncast_comparison* comparison) {
  constexpr const char* function = "ncast_predictor_compare_call";
  return guarded(function, [&] {
    comm::Question question{};
    if (ncast_status status = comm::read_question(function, call, &question)) return status;
    return compare(function, predictor, question, with_windows != 0, comparison);
  });
}

ncast_status ncast_predictor_use_plan(ncast_predictor* predictor, const ncast_plan* plan, ncast_dtype dtype,
                                      ncast_redop op, const ncast_plan_use* use) {
  constexpr const char* function = "ncast_predictor_use_plan";
  return guarded(function, [&] {
    if (predictor == nullptr) return null_argument(function, "predictor");
    if (predictor->is_of_communicator)
      return fail(NCAST_INVALID_ARGUMENT, "%s: the predictor is of a communicator, which knows its plans", function);
    if (ncast_status status = plan::check_plan(function, plan)) return status;
    if (ncast_dtype_bytes(dtype) == 0) return fail(NCAST_INVALID_ARGUMENT, "%s: dtype is %d", function, int{dtype});
    if (op < NCAST_SUM || op > NCAST_AVG) return fail(NCAST_INVALID_ARGUMENT, "%s: op is %d", function, int{op});
    const plan::Proof& proof = plan->proof();
    if (proof.status != NCAST_OK) return fail(proof.status, "%s: %s", function, proof.message.c_str());
    if (const char* const why = comm::why_not_for_calls(proof.lowered, NCAST_BACKEND_CUDA))
      return fail(NCAST_UNSUPPORTED, "%s: %s", function, why);
    select::PlanCandidate candidate = comm::candidate_of(*plan, dtype, op);
    if (ncast_status status = comm::check_codec(function, plan->plan.operation, dtype, op, *candidate.codec))
      return status;
    if (ncast_status status = comm::apply_use(use, &candidate)) {
      const std::string message = ncast_last_error();
      return fail(status, "%s: %s", function, message.c_str());
    }
    candidate.loaded = 1;  // any number: no call runs by the decisions of this predictor
    predictor->decider->add_plan(std::move(candidate));
    return NCAST_OK;
  });
}

const char* ncast_predictor_costs_warning(const ncast_predictor* predictor) {
  return predictor == nullptr || predictor->costs_warning.empty() ? nullptr : predictor->costs_warning.c_str();
}

void ncast_predictor_destroy(ncast_predictor* predictor) { delete predictor; }

}  // extern "C"
