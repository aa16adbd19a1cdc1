#include "executor/host/plans.h"

#include "executor/host/schedule.h"
#include "plan/builders/builders.h"
#include "select/decision.h"

namespace narrowcast::executor::host {

ncast_status Plans::find(const Call& call, PlanRun** run) {
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
  auto plan = std::make_shared<plan::Plan>();
  if (ncast_status status = plan::builders::all_pairs(request, plan.get())) return status;
  auto prepared = std::make_unique<PlanRun>(comm_, std::move(plan));
  if (ncast_status status = prepared->prepare_own()) return status;
  *run = std::move(prepared);
  return NCAST_OK;
}

ncast_status add_plan(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  PlanRun* run = nullptr;
  if (ncast_status status = comm.plans->find(call, &run)) return status;
  Stage& stage = schedule->stages.emplace_back();
  stage.tag = make_tag(call, ++comm.collectives);
  stage.plan = run;
  stage.call = &call;
  // A rank that only sends would not notice that a peer made another call.
  if (has_root(call.operation)) stage.comparison.emplace(comm, stage.tag);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
