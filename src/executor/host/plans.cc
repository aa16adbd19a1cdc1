#include "executor/host/plans.h"

#include "executor/host/builder_plans.h"
#include "executor/host/staged_calls.h"
#include "select/frames.h"

namespace narrowcast::executor::host {

ncast_status Plans::find(const Call& call, PlanRun** run) {
  const char* builder = builder_of(call.plan);
  if (call.plan != 0 && builder == nullptr) {
    const std::lock_guard lock(mutex_);
    *run = loaded_[call.plan - 1].get();
    return NCAST_OK;
  }
  if (builder == nullptr) builder = call.built_in_plan;
  const int root = has_root(call.operation) ? call.peer : 0;
  const Key key = {call.operation, root, call.chosen_codec, call.chosen_result_codec, builder};
  std::unique_ptr<PlanRun>& entry = own_[key];
  if (entry == nullptr) {
    if (ncast_status status = build(key, &entry)) return status;
  }
  *run = entry.get();
  return NCAST_OK;
}

ncast_status Plans::build(const Key& key, std::unique_ptr<PlanRun>* run) {
  const auto& [operation, root, codec, result_codec, builder] = key;
  std::shared_ptr<const ProvedPlan> proved;
  const plan::builders::Request request = {.operation = operation,
                                           .ranks = comm_.ranks(),
                                           .root = root,
                                           .codec = codec,
                                           .hosts = comm_.levels,
                                           .codec_within = NCAST_CODEC_RAW,  // memory is faster than codecs
                                           .partial_sums = !comm_.rounds_partial_sums,
                                           .result_codec = result_codec};
  if (ncast_status status = find_proved(builder, request, &proved)) return status;
  auto prepared = std::make_unique<PlanRun>(comm_, proved);
  // The default shares the staging buffers, although it has several groups: only one of them needs these buffers.
  const bool is_default = builder == select::plan_between_processes(operation);
  const auto prepare = [&] {
    if (is_default || prepared->can_use_own_rings(proved->least_depth)) return prepared->prepare_own();
    // Ranks of several hosts cannot share memory for other rings.
    if (!comm_.levels.empty() && prepared->can_use_rings(proved->least_depth))
      return prepared->prepare_with_own_buffers();
    // The errors are those of Plans::load(), on all ranks.
    return prepared->prepare_loaded();
  };
  if (ncast_status status = prepare()) return status;
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

ncast_status add_plan(const Call& call, StagedCalls* staged) {
  Communicator& comm = communicator_of(call);
  PlanRun* run = nullptr;
  if (ncast_status status = comm.plans->find(call, &run)) return status;
  CallTag tag = make_tag(call, ++comm.collectives);
  const bool shares_memory = call.plan != 0 && run->shares_memory();
  if (shares_memory) {
    // Without messages, nothing else would reveal that the ranks make different calls.
    Stage& before = staged->stages.emplace_back();
    before.tag = tag;
    before.comparison.emplace(comm, tag);
    tag.phase = 1;
  }
  Stage& stage = staged->stages.emplace_back();
  stage.tag = tag;
  stage.plan = run;
  stage.call = &call;
  // A rank that only sends would not notice that a peer made another call.
  if (!shares_memory && (has_root(call.operation) || call.plan != 0)) stage.comparison.emplace(comm, tag);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
