// Small plans for the tests of the verifier and the executors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::plan::verify::testing {

inline Operand local(Buffer buffer, uint32_t chunk) {
  return {.place = Place::local, .buffer = buffer, .chunk = chunk};
}
inline Operand input(uint32_t chunk) { return local(Buffer::input, chunk); }
inline Operand output(uint32_t chunk) { return local(Buffer::output, chunk); }
inline Operand scratch(uint32_t chunk) { return local(Buffer::scratch, chunk); }
inline Operand message(uint32_t ring, ncast_codec codec = NCAST_CODEC_RAW) {
  return {.place = Place::message, .channel = ring, .codec = codec};
}
// The same chunk at the other end of a memory or port channel.
inline Operand remote(Operand operand, uint32_t channel) {
  operand.place = Place::remote;
  operand.channel = channel;
  return operand;
}
inline Operand everywhere(Operand operand, uint32_t channel) {
  operand.place = Place::everywhere;
  operand.channel = channel;
  return operand;
}
inline Operand packets(Operand operand) {
  operand.packets = true;
  return operand;
}

inline Step step_of(StepKind kind) {
  Step step;
  step.kind = kind;
  return step;
}
inline Step reduce(std::vector<Operand> from, std::vector<Operand> to, uint32_t count = 1) {
  Step step = step_of(StepKind::reduce);
  step.count = count;
  step.from = std::move(from);
  step.to = std::move(to);
  return step;
}
inline Step copy(Operand from, std::vector<Operand> to, uint32_t count = 1) {
  Step step = reduce({from}, std::move(to), count);
  step.kind = StepKind::copy;
  return step;
}
inline Step on_channels(StepKind kind, std::vector<uint32_t> channels, bool relaxed = false) {
  Step step = step_of(kind);
  step.channels = std::move(channels);
  step.relaxed = relaxed;
  return step;
}
inline Step signal(std::vector<uint32_t> channels) { return on_channels(StepKind::signal, std::move(channels)); }
inline Step wait(std::vector<uint32_t> channels) { return on_channels(StepKind::wait, std::move(channels)); }
inline Step relaxed_signal(std::vector<uint32_t> channels) {
  return on_channels(StepKind::signal, std::move(channels), true);
}
inline Step relaxed_wait(std::vector<uint32_t> channels) {
  return on_channels(StepKind::wait, std::move(channels), true);
}
inline Step flush(std::vector<uint32_t> channels) { return on_channels(StepKind::flush, std::move(channels)); }
inline Step barrier(uint32_t index) {
  Step step = step_of(StepKind::barrier);
  step.barrier = index;
  return step;
}
inline Step sync() { return step_of(StepKind::sync); }
inline Step loop(std::vector<Step> body, uint64_t unit_bytes = 4096) {
  Step step = step_of(StepKind::loop);
  step.unit_bytes = unit_bytes;
  step.body = std::move(body);
  return step;
}
inline Step after(Step step, std::vector<StepId> dependences) {
  step.after = std::move(dependences);
  return step;
}

// A plan without steps, in which every rank has `groups` groups.
Plan empty_plan(Operation operation, int ranks, uint32_t chunks = 1, uint32_t groups = 1);
// Adds a channel and returns its index.
uint32_t add_ring(Plan& plan, int from, int to, uint32_t depth = 8);
uint32_t add_memory(Plan& plan, int from, int to, uint32_t initial = 0);
uint32_t add_port(Plan& plan, int from, int to);
uint32_t add_switch(Plan& plan);
void add(Plan& plan, int rank, Step step, uint32_t group = 0);

// --- correct plans

// Steps receive and send, so that a depth of one does not suffice.
Plan ring_all_gather(int ranks, uint32_t chunks = 1, uint32_t depth = 2);
Plan ring_all_reduce(int ranks, uint32_t depth = 2);
Plan all_pairs_all_gather(int ranks);
// All ranks send everything, then combine in rank order.
Plan all_pairs_all_reduce(int ranks, uint32_t chunks = 1);
Plan two_shot_all_reduce(int ranks, uint32_t chunks = 1);
Plan recursive_doubling_all_reduce(int ranks);
Plan tree_broadcast(int ranks, int root);
// Puts into the peers' outputs, between relaxed signals and signals.
Plan memory_all_gather(int ranks);
// Gets from the peers' inputs.
Plan memory_all_reduce(int ranks, Threads threads = Threads::synchronized);
// One group puts through ports and another one waits.
Plan port_all_to_all(int ranks);
// Packets into every peer's scratch; two copies of the scratch.
Plan packet_all_reduce(int ranks, uint32_t scratch_copies = 2);
// Two-shot; the exchange of the second shot protects a single scratch.
Plan packet_two_shot_all_reduce(int ranks, uint32_t scratch_copies = 1);
Plan switch_all_reduce(int ranks);
// One group sends, another receives into scratch, a third reduces after it.
Plan grouped_reduce_scatter(int ranks);
// Groups that pass values in scratch, ordered by barriers.
Plan barrier_all_gather(int ranks);
// A pipeline: one group puts parts into scratch and signals for each, another one consumes them.
Plan pipelined_all_gather(int ranks);

// --- correct plans with many groups

// `groups` rings. Each has two groups in each rank: one combines, the other distributes the results after it. Messages
// have `count` chunks.
Plan wide_all_reduce(int ranks, uint32_t groups, uint32_t count);
// Each group puts its chunk into the outputs of all peers.
Plan wide_memory_all_gather(int ranks, uint32_t groups);

// The plan without loops: `parts` iterations for each chunk, and chunks divided accordingly.
Plan unrolled(const Plan& plan, uint32_t parts);
bool has_loop(const Plan& plan);

// All plans above, except the large ones, for small numbers of ranks.
std::vector<Plan> correct_plans();

}  // namespace narrowcast::plan::verify::testing
