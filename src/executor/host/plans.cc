#include "executor/host/plans.h"

#include "executor/host/schedule.h"
#include "plan/builders/builders.h"
#include "select/decision.h"

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
  if (call.plan != 0) {
    const std::lock_guard lock(mutex_);
    *run = loaded_[call.plan - 1].get();
    return NCAST_OK;
  }
  const int root = has_root(call.operation) ? call.peer : 0;
  const Key key = {call.operation, root, select::codec_between_processes(call.codec)};
  std::unique_ptr<PlanRun>& entry = own_[key];
  if (entry == nullptr) {
    if (ncast_status status = build(key, &entry)) return status;
  }
  *run = entry.get();
  return NCAST_OK;
}

ncast_status Plans::build(const Key& key, std::unique_ptr<PlanRun>* run) {
  const auto& [operation, root, codec] = key;
  plan::builders::Request request;
  request.operation = operation;
  request.ranks = comm_.ranks();
  request.root = root;
  request.codec = codec;
  auto plan = std::make_shared<ProvedPlan>();
  if (ncast_status status = plan::builders::build(select::plan_between_processes(operation), request, &plan->plan))
    return status;
  add_reductions(&*plan, comm_.rank());
  auto prepared = std::make_unique<PlanRun>(comm_, std::move(plan));
  if (ncast_status status = prepared->prepare_own()) return status;
  *run = std::move(prepared);
  return NCAST_OK;
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
