#include "executor/host/plan_run.h"

#include <cstring>
#include <utility>

namespace narrowcast::executor::host {

using plan::Buffer;

namespace {

// A group lets the others advance after this many steps.
constexpr int max_steps = 16;

std::function<bool(int, uint32_t)>& interleaving() {
  static std::function<bool(int, uint32_t)> may_advance;
  return may_advance;
}

}  // namespace

void set_interleaving(std::function<bool(int rank, uint32_t group)> may_advance) {
  interleaving() = std::move(may_advance);
}

ncast_status PlanRun::prepare_own() {
  if (ncast_status status = PlanMemory::borrow(state_.comm, *state_.plan, &state_.memory)) return status;
  make_groups();
  return NCAST_OK;
}

ncast_status PlanRun::prepare_with_own_buffers() {
  if (ncast_status status = PlanMemory::borrow_rings(state_.comm, *state_.plan, state_.facts, &state_.memory))
    return status;
  make_groups();
  return NCAST_OK;
}

ncast_status PlanRun::prepare_loaded() {
  if (ncast_status status = PlanMemory::allocate(state_.comm, *state_.plan, state_.facts, &state_.memory))
    return status;
  make_groups();
  return NCAST_OK;
}

void PlanRun::make_groups() {
  const size_t count = state_.rank_plan().groups.size();
  groups_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) groups_.emplace_back(state_, groups_, i);
}

void PlanRun::begin(const Call& call, const CallTag& tag) {
  state_.begin(call, tag);
  batch_ = 0;
  for (GroupRun& group : groups_) group.begin();
  copy_input_in();
}

ncast_status PlanRun::advance(bool* progressed) {
  const bool freely = state_.facts.runs_freely();
  const uint64_t end = freely ? state_.batches : batch_ + 1;
  const auto& may_advance = interleaving();
  bool all_done = true;
  for (uint32_t i = 0; i < groups_.size(); ++i) {
    GroupRun& group = groups_[i];
    if (group.batch() >= end) continue;
    if (may_advance && !may_advance(state_.comm.rank(), i)) {
      *progressed = true;  // so that the engine does not wait for a peer
    } else if (ncast_status status = group.advance(end, may_advance ? 1 : max_steps, progressed)) {
      return status;
    }
    all_done = all_done && group.batch() >= end;
  }
  if (!all_done) return NCAST_OK;
  copy_output_out();
  batch_ = end;
  *progressed = true;
  if (done())
    state_.epoch += state_.batches;
  else
    copy_input_in();
  return NCAST_OK;
}

channel::RankSet PlanRun::awaited_ranks() const {
  channel::RankSet set = 0;
  if (done()) return set;
  for (const GroupRun& group : groups_) set |= group.awaited_ranks();
  return set;
}

void PlanRun::copy_input_in() {
  if (!state_.facts.exposes(Buffer::input)) return;
  const int rank = state_.comm.rank();
  for (uint32_t chunk = 0; chunk < state_.plan->input_chunks(rank); ++chunk) {
    const Values part = state_.locate(rank, Buffer::input, chunk, {.batch = batch_});
    if (part.elems == 0) continue;
    std::memcpy(part.start, state_.in_user_memory(Buffer::input, chunk, batch_), part.elems * state_.value_bytes);
  }
}

void PlanRun::copy_output_out() {
  if (!state_.facts.exposes(Buffer::output)) return;
  const int rank = state_.comm.rank();
  for (uint32_t chunk = 0; chunk < state_.plan->output_chunks(rank); ++chunk) {
    const Values part = state_.locate(rank, Buffer::output, chunk, {.batch = batch_});
    if (part.elems == 0) continue;
    std::memcpy(state_.in_user_memory(Buffer::output, chunk, batch_), part.start, part.elems * state_.value_bytes);
  }
}

}  // namespace narrowcast::executor::host
