#include "executor/host/plans.h"

#include <algorithm>
#include <span>

#include "executor/host/schedule.h"
#include "plan/builders/builders.h"
#include "plan/lower/lower.h"
#include "plan/verify/verify.h"
#include "select/decider.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

// In plans of the library's own calls every reduction combines the values of all ranks.
void add_reductions(ProvedPlan* loaded, int rank) {
  const std::vector<plan::Group>& groups = loaded->plan.ranks[static_cast<size_t>(rank)].groups;
  for (size_t group = 0; group < groups.size(); ++group) {
    for (size_t step = 0; step < groups[group].steps.size(); ++step) {
      if (groups[group].steps[step].kind != plan::StepKind::reduce) continue;
      plan::verify::Where where;
      where.rank = rank;
      where.group = static_cast<int>(group);
      where.step = static_cast<int>(step);
      loaded->completing.push_back(where);
    }
  }
}

// The builder of the plan that the library chooses for a call.
std::string_view builder_of(const Call& call) {
  select::Decider& decider = *call.comm->decider();
  const char* const fallback = select::plan_between_processes(call.operation);
  if (!decider.chooses_plans()) return fallback;
  const select::Decision decision = decider.decide(decider.shape_of(
      call.operation, call.dtype, call.codec, call.count * ncast_dtype_bytes(call.dtype), call.redop, call.peer));
  return decision.chosen != nullptr && decision.chosen->loaded == 0 ? decision.plan : fallback;
}

uint32_t number_of(std::string_view builder) {
  const std::span<const plan::builders::Row> rows = plan::builders::rows();
  const auto found = std::ranges::find_if(rows, [&](const plan::builders::Row& row) { return row.name == builder; });
  return plan_of_builder(static_cast<uint32_t>(found - rows.begin()));
}

}  // namespace

ncast_status Plans::find(const Call& call, PlanRun** run, uint32_t* number) {
  *number = call.plan;
  if (call.plan != 0) {
    const std::lock_guard lock(mutex_);
    *run = loaded_[call.plan - 1].get();
    return NCAST_OK;
  }
  const int root = has_root(call.operation) ? call.peer : 0;
  const Key key = {call.operation, root, select::codec_between_processes(call.codec), builder_of(call)};
  std::unique_ptr<PlanRun>& entry = own_[key];
  if (entry == nullptr) {
    if (ncast_status status = build(key, &entry)) return status;
  }
  *run = entry.get();
  const std::string_view builder = std::get<std::string_view>(key);
  if (builder != select::plan_between_processes(call.operation)) *number = number_of(builder);
  return NCAST_OK;
}

ncast_status Plans::build(const Key& key, std::unique_ptr<PlanRun>* run) {
  const auto& [operation, root, codec, builder] = key;
  plan::builders::Request request;
  request.operation = operation;
  request.ranks = comm_.ranks();
  request.root = root;
  request.codec = codec;
  plan::Plan plan;
  if (ncast_status status = plan::builders::build(builder, request, &plan)) return status;
  if (builder != select::plan_between_processes(operation)) {
    plan::Plan lowered;
    if (ncast_status status = plan::lower::lower(plan, &lowered)) return status;
    const plan::verify::Report proof = plan::verify::verify(lowered);
    if (proof.verdict != plan::verify::Verdict::proved)
      return fail(NCAST_INTERNAL, "the plan '%s' is not proved: %s", plan.name.c_str(), proof.finding.message.c_str());
    const uint32_t depth = std::max(proof.least_depth, proof.depth_needed_when_split);
    return prepare(std::make_shared<ProvedPlan>(ProvedPlan{std::move(lowered), proof.completing}), depth, run);
  }
  auto proved = std::make_shared<ProvedPlan>(ProvedPlan{std::move(plan), {}});
  add_reductions(&*proved, comm_.rank());
  auto prepared = std::make_unique<PlanRun>(comm_, std::move(proved));
  if (ncast_status status = prepared->prepare_own()) return status;
  *run = std::move(prepared);
  return NCAST_OK;
}

ncast_status Plans::prepare(std::shared_ptr<const ProvedPlan> plan, uint32_t depth, std::unique_ptr<PlanRun>* run) {
  auto prepared = std::make_unique<PlanRun>(comm_, std::move(plan));
  const ncast_status status = prepared->can_use_own_rings(depth) ? prepared->prepare_own() : prepared->prepare_loaded();
  if (status == NCAST_OK) *run = std::move(prepared);
  return status;
}

ncast_status Plans::load(std::shared_ptr<const ProvedPlan> plan, uint32_t* number) {
  auto prepared = std::make_unique<PlanRun>(comm_, std::move(plan));
  const ncast_status status = prepared->prepare_loaded();
  const std::lock_guard lock(mutex_);
  loaded_.push_back(status == NCAST_OK ? std::move(prepared) : nullptr);
  *number = static_cast<uint32_t>(loaded_.size());
  return status;
}

void Plans::unload(uint32_t number) {
  const std::lock_guard lock(mutex_);
  loaded_[number - 1].reset();
}

ncast_status add_plan(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  PlanRun* run = nullptr;
  uint32_t number = 0;
  if (ncast_status status = comm.plans->find(call, &run, &number)) return status;
  CallTag tag = make_tag(call, ++comm.collectives);
  tag.plan = number;
  const bool shares_memory = number != 0 && run->shares_memory();
  if (shares_memory) {
    // Without messages, nothing else would reveal that the ranks make different calls.
    Stage& before = schedule->stages.emplace_back();
    before.tag = tag;
    before.comparison.emplace(comm, tag);
    tag.phase = 1;
  }
  Stage& stage = schedule->stages.emplace_back();
  stage.tag = tag;
  stage.plan = run;
  stage.call = &call;
  // A rank that only sends would not notice that a peer made another call.
  if (!shares_memory && (has_root(call.operation) || number != 0)) stage.comparison.emplace(comm, tag);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
