#include "comm/plan_use.h"

#include <algorithm>

#include "codec/codec.h"
#include "comm/arguments.h"
#include "executor/communicator.h"
#include "plan/handle.h"
#include "plan/steps.h"
#include "status/error.h"
#include "status/sized_struct.h"

namespace narrowcast::comm {
namespace {

template <typename Visit>
void for_each_operand(const std::vector<plan::Step>& steps, const Visit& visit) {
  for (const plan::Step& step : steps) {
    for_each_operand(step.body, visit);
    std::ranges::for_each(step.from, visit);
    std::ranges::for_each(step.to, visit);
  }
}
template <typename Visit>
void for_each_operand(const plan::Plan& plan, const Visit& visit) {
  for (const plan::Rank& rank : plan.ranks)
    for (const plan::Group& group : rank.groups) for_each_operand(group.steps, visit);
}

// The codec of the messages: raw if all are, and one that is not exact if there is one.
ncast_codec codec_of(const plan::Plan& plan) {
  ncast_codec codec = NCAST_CODEC_RAW;
  for_each_operand(plan, [&](const plan::Operand& operand) {
    if (operand.codec == NCAST_CODEC_RAW) return;
    if (codec == NCAST_CODEC_RAW || codec::is_exact(codec)) codec = operand.codec;
  });
  return codec;
}

// The limits of a plan are those of the larger buffer, and those of a call those of `count` values.
uint64_t piece_bytes(const plan::Plan& plan, uint64_t bytes) {
  const operation::Description& row = operation::describe(plan.operation);
  const auto ranks = static_cast<uint64_t>(plan.rank_count());
  return bytes / std::max(operation::pieces(row.send, ranks, true), operation::pieces(row.recv, ranks, true));
}

bool all_ranks_have_both(operation::Operation operation) {
  const operation::Description& row = operation::describe(operation);
  const auto has_both = [&](bool is_root) {
    return operation::pieces(row.send, 2, is_root) != 0 && operation::pieces(row.recv, 2, is_root) != 0;
  };
  return has_both(true) && has_both(false);
}

select::Placement placement_of(const executor::Call& call) {
  if (!all_ranks_have_both(call.operation)) return select::Placement::unknown;
  return is_in_place(call) ? select::Placement::in_place : select::Placement::separate;
}

}  // namespace

select::PlanCandidate candidate_of(const ncast_plan& plan, ncast_dtype dtype, ncast_redop op) {
  const plan::Plan& content = plan.plan;
  const plan::verify::Report& proof = plan.proof().report;
  const bool reduces = operation::reduces(content.operation);
  select::PlanCandidate made;
  made.name = plan.cost_name();
  made.plan = content.name.empty() ? made.name : content.name;
  made.operation = content.operation;
  made.ranks = content.rank_count();
  if (operation::has_root(content.operation)) made.root = content.root;
  made.min_bytes = piece_bytes(content, content.min_bytes);
  if (content.max_bytes != 0) made.max_bytes = piece_bytes(content, content.max_bytes);
  made.dtype = dtype;
  if (reduces) made.redop = op;
  const bool may_be_in_place = operation::describe(content.operation).overlap == operation::Overlap::IN_PLACE;
  if (content.in_place == plan::InPlace::yes) made.placement = select::Placement::in_place;
  if (content.in_place == plan::InPlace::no && may_be_in_place) made.placement = select::Placement::separate;
  made.has_same_results = !reduces || (proof.rank_order && proof.roundings <= 1);
  made.codec = codec_of(content);
  return made;
}

const char* why_not_for_calls(const plan::Plan& plan, ncast_backend backend) {
  const bool may_be_in_place = operation::describe(plan.operation).overlap == operation::Overlap::IN_PLACE;
  if (plan.in_place == plan::InPlace::yes && !may_be_in_place)
    return "the plan works in place only, and the operation does not";
  if (plan.in_place != plan::InPlace::either && may_be_in_place && !all_ranks_have_both(plan.operation))
    return plan.in_place == plan::InPlace::yes
               ? "the plan works in place only, and only some ranks know whether a call does"
               : "the plan does not work in place, and only some ranks know whether a call does";
  if (backend == NCAST_BACKEND_HOST) return nullptr;
  bool exposes = false;
  for_each_operand(plan, [&](const plan::Operand& operand) {
    const bool is_elsewhere = operand.place == plan::Place::remote || operand.place == plan::Place::everywhere;
    exposes = exposes || (is_elsewhere && operand.buffer != plan::Buffer::scratch);
  });
  return exposes ? "the plan lets other ranks access inputs or outputs, which would have to be registered" : nullptr;
}

ncast_status apply_use(const ncast_plan_use* use, select::PlanCandidate* candidate) {
  ncast_plan_use given = {};
  if (use != nullptr)
    if (ncast_status status = read_struct("use", *use, offsetof(ncast_plan_use, min_bytes), &given)) return status;
  if (given.max_bytes != 0 && given.max_bytes < given.min_bytes)
    return fail(NCAST_INVALID_ARGUMENT, "use->max_bytes is less than min_bytes");
  candidate->always = given.always != 0;
  candidate->min_bytes = std::max(candidate->min_bytes, given.min_bytes);
  if (given.max_bytes != 0) candidate->max_bytes = std::min(candidate->max_bytes, given.max_bytes);
  return NCAST_OK;
}

void decide(executor::Call* call) {
  select::Decider& decider = *call->comm->decider();
  const bool chooses_plans = decider.chooses_plans() && plan::has_plans(call->operation);
  // The CUDA backend decides about the built-in way itself when it launches the call.
  if (!chooses_plans && call->comm->backend() != NCAST_BACKEND_HOST) return;
  select::CallShape shape = decider.shape_of(call->operation, call->dtype, codec::canonical(call->codec),
                                             call->count * ncast_dtype_bytes(call->dtype), redop_of_tag(*call),
                                             call->peer, placement_of(*call));
  shape.result_codec = call->result_codec;
  const select::Decision decision = decider.decide(shape);
  call->chosen_codec = decision.codec;
  call->chosen_result_codec = decision.result_codec;
  call->built_in_plan = decision.built_in_plan;
  if (decision.chosen == nullptr) return;
  if (decision.chosen->loaded == 0) {
    call->plan = executor::plan_of_builder(decision.chosen->plan);
  } else if (executor::LoadedPlan* const plan = call->comm->plans_in_use().find(decision.chosen->loaded)) {
    plan->assign_to(call);
  }
}

}  // namespace narrowcast::comm
