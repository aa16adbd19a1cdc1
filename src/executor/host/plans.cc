#include "executor/host/plans.h"

#include <algorithm>

#include "executor/host/schedule.h"
#include "plan/builders/builders.h"
#include "plan/lower/lower.h"
#include "plan/verify/verify.h"
#include "select/decision.h"
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

}  // namespace

ncast_status Plans::find(const Call& call, PlanRun** run) {
  const char* builder = builder_of(call.plan);
  if (call.plan != 0 && builder == nullptr) {
    const std::lock_guard lock(mutex_);
    *run = loaded_[call.plan - 1].get();
    return NCAST_OK;
  }
  if (builder == nullptr) builder = select::plan_between_processes(call.operation);
  const int root = has_root(call.operation) ? call.peer : 0;
  const Key key = {call.operation, root, select::codec_between_processes(call.codec), builder};
  std::unique_ptr<PlanRun>& entry = own_[key];
  if (entry == nullptr) {
    if (ncast_status status = build(key, &entry)) return status;
  }
  *run = entry.get();
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
  add_reductions(proved.get(), comm_.rank());
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
  if (ncast_status status = comm.plans->find(call, &run)) return status;
  CallTag tag = make_tag(call, ++comm.collectives);
  const bool shares_memory = call.plan != 0 && run->shares_memory();
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
  if (!shares_memory && (has_root(call.operation) || call.plan != 0)) stage.comparison.emplace(comm, tag);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
