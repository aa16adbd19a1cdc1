// The order of steps: dependences, loops, semaphores and barriers. group_move.cc has copies and reductions.
#include "executor/host/group_run.h"

#include "executor/host/message.h"

namespace narrowcast::executor::host {

using plan::Step;
using plan::StepKind;

namespace {

uint32_t largest_count(const Step& loop) {
  uint32_t count = 1;
  for (const Step& step : loop.body) count = std::max(count, step.count);
  return count;
}

}  // namespace

GroupRun::GroupRun(PlanState& state, const GroupRuns& all, uint32_t index)
    : state_(state),
      all_(all),
      index_(index),
      group_(state.rank_plan().groups[index]),
      buffers_(state.memory.buffers_of(index)) {}

void GroupRun::begin() {
  batch_ = 0;
  step_ = 0;
}

bool GroupRun::block_on(int rank) {
  if (rank != state_.comm.rank()) awaited_ |= channel::rank_bit(rank);
  return false;
}

ncast_status GroupRun::advance(uint64_t end, int max_steps, bool* progressed) {
  awaited_ = 0;
  moved_bytes_ = 0;
  steps_left_ = max_steps;
  while (may_go_on() && batch_ < end) {
    --steps_left_;
    if (step_ == group_.steps.size()) {
      ++batch_;
      step_ = 0;
      *progressed = true;
      continue;
    }
    bool passed = false;
    if (ncast_status status = advance_step(group_.steps[step_], &passed, progressed)) return status;
    if (!passed) return NCAST_OK;
    ++step_;
    *progressed = true;
  }
  return NCAST_OK;
}

ncast_status GroupRun::advance_step(const Step& step, bool* passed, bool* progressed) {
  if (step.kind == StepKind::loop) return advance_loop(step, passed, progressed);
  part_ = {.batch = batch_};
  is_last_unit_ = true;
  return advance_simple(step, passed);
}

// A loop goes through the chunks of its operands, and through the units of each. The number of iterations does not
// depend on where a chunk is short, so that it is the same on all ranks.
ncast_status GroupRun::advance_loop(const Step& loop, bool* passed, bool* progressed) {
  if (iteration_ == 0 && body_step_ == 0 && stage_ == Stage::enter && !dependences_hold(loop)) return NCAST_OK;
  const uint64_t batch_first = batch_ * state_.part_elems;
  const uint64_t batch_elems =
      std::min(state_.part_elems, state_.chunk_elems - std::min(state_.chunk_elems, batch_first));
  const uint64_t unit_elems = std::max<uint64_t>(1, loop.unit_bytes / state_.value_bytes);
  const uint64_t units = std::max<uint64_t>(1, (batch_elems + unit_elems - 1) / unit_elems);
  const uint64_t iterations = units * largest_count(loop);
  while (iteration_ < iterations) {
    const uint64_t unit = iteration_ % units;
    while (body_step_ < loop.body.size()) {
      const Step& step = loop.body[body_step_];
      part_ = {batch_, unit * unit_elems, unit_elems};
      is_last_unit_ = unit + 1 == units;
      if (stage_ == Stage::enter) chunk_ = static_cast<uint32_t>(iteration_ / units);
      bool step_passed = false;
      if (ncast_status status = advance_simple(step, &step_passed)) return status;
      if (!step_passed) return NCAST_OK;
      ++body_step_;
      *progressed = true;
      --steps_left_;
      if (!may_go_on()) return NCAST_OK;
    }
    body_step_ = 0;
    ++iteration_;
  }
  iteration_ = 0;
  *passed = true;
  return NCAST_OK;
}

ncast_status GroupRun::advance_simple(const Step& step, bool* passed) {
  if (stage_ == Stage::enter) {
    if (!dependences_hold(step)) return NCAST_OK;
    stage_ = Stage::sources;
    next_ = 0;
    const bool in_loop = part_.elems != ~uint64_t{0};
    if (!in_loop) chunk_ = 0;
    if (step.kind == StepKind::barrier) {
      const std::vector<uint32_t>& members = state_.rank_plan().barriers[step.barrier];
      const auto self = std::ranges::find(members, index_) - members.begin();
      ++state_.arrivals[step.barrier][static_cast<size_t>(self)];
    }
  }
  switch (step.kind) {
    case StepKind::copy:
    case StepKind::reduce:
      if (ncast_status status = advance_part(step, passed)) return status;
      break;
    case StepKind::signal:
      signal(step);
      *passed = true;
      break;
    case StepKind::wait: *passed = wait(step); break;
    case StepKind::barrier: *passed = pass_barrier(step.barrier); break;
    // Stores complete at once, and one thread runs all steps.
    case StepKind::flush:
    case StepKind::sync:
    case StepKind::loop: *passed = true; break;
  }
  if (*passed) stage_ = Stage::enter;
  return NCAST_OK;
}

// All chunks of a step or, in a loop, the chunk of the iteration.
ncast_status GroupRun::advance_part(const Step& step, bool* passed) {
  const bool in_loop = part_.elems != ~uint64_t{0};
  while (chunk_ < step.count) {
    if (stage_ == Stage::sources) {
      bool taken = false;
      if (ncast_status status = take_sources(step, &taken)) return status;
      if (!taken) return NCAST_OK;
      context_ = context_of(step);
      stage_ = Stage::stores;
    }
    if (stage_ == Stage::stores) {
      if (ncast_status status = store_all(step)) return status;
      is_sent_.assign(step.to.size(), 0);
      stage_ = Stage::messages;
    }
    bool all_sent = false;
    if (ncast_status status = send_messages(step, &all_sent)) return status;
    if (!all_sent) return NCAST_OK;
    if (step.kind == StepKind::copy) release(step.from[0]);
    stage_ = Stage::sources;
    next_ = 0;
    moved_bytes_ += elems_ * state_.value_bytes;
    if (in_loop) break;
    ++chunk_;
  }
  *passed = true;
  return NCAST_OK;
}

bool GroupRun::dependences_hold(const Step& step) {
  return std::ranges::all_of(step.after,
                             [&](const plan::StepId& id) { return all_[id.group].has_completed(id.step, batch_); });
}

void GroupRun::signal(const Step& step) {
  for (const uint32_t channel : step.channels) {
    state_.memory.semaphore(channel).signal(state_.comm.world->bell_of(state_.plan->channels[channel].to));
  }
}

bool GroupRun::wait(const Step& step) {
  for (; next_ < step.channels.size(); ++next_) {
    const uint32_t channel = step.channels[next_];
    const plan::Channel& row = state_.plan->channels[channel];
    if (state_.memory.semaphore(channel).poll() + row.initial == state_.consumed[channel]) return block_on(row.from);
    ++state_.consumed[channel];
  }
  return true;
}

bool GroupRun::pass_barrier(uint32_t barrier) {
  const std::vector<uint64_t>& arrivals = state_.arrivals[barrier];
  const std::vector<uint32_t>& members = state_.rank_plan().barriers[barrier];
  const uint64_t own = arrivals[static_cast<size_t>(std::ranges::find(members, index_) - members.begin())];
  return std::ranges::all_of(arrivals, [own](uint64_t count) { return count >= own; });
}

}  // namespace narrowcast::executor::host
