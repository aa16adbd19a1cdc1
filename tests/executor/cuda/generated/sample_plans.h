// Plans for tests of generated kernels.
#pragma once

#include <utility>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::test {

using plan::Buffer;
using plan::Operand;
using plan::Place;
using plan::Plan;
using plan::Step;
using plan::StepKind;

inline Operand chunk(Buffer buffer, uint32_t index) { return {Place::local, buffer, index}; }
inline Operand message(uint32_t channel, ncast_codec codec) {
  Operand operand{Place::message};
  operand.channel = channel;
  operand.codec = codec;
  return operand;
}
inline Operand remote(Buffer buffer, uint32_t index, uint32_t channel) {
  return {Place::remote, buffer, index, channel};
}
inline Step copy(Operand from, std::vector<Operand> to) {
  Step step;
  step.from = {from};
  step.to = std::move(to);
  return step;
}
inline Step reduce(std::vector<Operand> from, std::vector<Operand> to) {
  Step step;
  step.kind = StepKind::reduce;
  step.from = std::move(from);
  step.to = std::move(to);
  return step;
}
inline Step on_channels(StepKind kind, std::vector<uint32_t> channels) {
  Step step;
  step.kind = kind;
  step.channels = std::move(channels);
  return step;
}

// A plan with a ring from every rank to every other one: channel from * ranks + to.
inline Plan all_pairs_plan(const char* name, plan::Operation operation, uint32_t ranks, uint32_t depth) {
  Plan plan;
  plan.name = name;
  plan.operation = operation;
  plan.ranks.resize(ranks);
  for (uint32_t from = 0; from < ranks; ++from) {
    for (uint32_t to = 0; to < ranks; ++to) {
      plan::Channel ring;
      ring.from = static_cast<int>(from);
      ring.to = static_cast<int>(to);
      ring.depth = depth;
      if (from == to) ring.kind = plan::ChannelKind::memory;  // not used
      plan.channels.push_back(ring);
    }
  }
  return plan;
}

// Every rank sends its piece to all others. Sending and receiving are separate groups.
inline Plan all_gather_plan(uint32_t ranks, ncast_codec codec) {
  Plan plan = all_pairs_plan("all_gather all-pairs", plan::Operation::all_gather, ranks, 1);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Step> sends, receives;
    for (uint32_t step = 1; step < ranks; ++step)
      sends.push_back(copy(chunk(Buffer::input, 0), {message(rank * ranks + (rank + step) % ranks, codec)}));
    sends.push_back(copy(chunk(Buffer::input, 0), {chunk(Buffer::output, rank)}));
    for (uint32_t step = 1; step < ranks; ++step) {
      const uint32_t from = (rank + ranks - step) % ranks;
      receives.push_back(copy(message(from * ranks + rank, codec), {chunk(Buffer::output, from)}));
    }
    plan.ranks[rank].groups = {{std::move(sends)}, {std::move(receives)}};
  }
  return plan;
}

// Two-shot all-reduce: chunk r is reduced by rank r, in rank order, and sent to all.
inline Plan all_reduce_plan(uint32_t ranks, ncast_codec codec) {
  Plan plan = all_pairs_plan("all_reduce two-shot", plan::Operation::all_reduce, ranks, 2);
  plan.chunks = ranks;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Step> steps;
    std::vector<Operand> sources, results = {chunk(Buffer::output, rank)};
    for (uint32_t step = 1; step < ranks; ++step) {
      const uint32_t to = (rank + step) % ranks;
      steps.push_back(copy(chunk(Buffer::input, to), {message(rank * ranks + to, codec)}));
      results.push_back(message(rank * ranks + to, codec));
    }
    for (uint32_t from = 0; from < ranks; ++from)
      sources.push_back(from == rank ? chunk(Buffer::input, rank) : message(from * ranks + rank, codec));
    steps.push_back(reduce(std::move(sources), std::move(results)));
    for (uint32_t step = 1; step < ranks; ++step) {
      const uint32_t from = (rank + ranks - step) % ranks;
      steps.push_back(copy(message(from * ranks + rank, codec), {chunk(Buffer::output, from)}));
    }
    plan.ranks[rank].groups = {{std::move(steps)}};
  }
  return plan;
}

// One-shot all-reduce: every rank sends everything to all and reduces everything.
inline Plan all_reduce_one_shot_plan(uint32_t ranks, ncast_codec codec) {
  Plan plan = all_pairs_plan("all_reduce one-shot", plan::Operation::all_reduce, ranks, 1);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Operand> to, sources;
    for (uint32_t step = 1; step < ranks; ++step) to.push_back(message(rank * ranks + (rank + step) % ranks, codec));
    for (uint32_t from = 0; from < ranks; ++from)
      sources.push_back(from == rank ? chunk(Buffer::input, 0) : message(from * ranks + rank, codec));
    plan.ranks[rank].groups = {
        {{copy(chunk(Buffer::input, 0), std::move(to)), reduce(std::move(sources), {chunk(Buffer::output, 0)})}}};
  }
  return plan;
}

// Ring all-reduce: ranks x (reduce and pass on), then the results go around. Rounds in every step.
inline Plan ring_all_reduce_plan(uint32_t ranks, ncast_codec codec) {
  Plan plan;
  plan.name = "all_reduce ring";
  plan.operation = plan::Operation::all_reduce;
  plan.chunks = ranks;
  plan.ranks.resize(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    plan::Channel ring;
    ring.from = static_cast<int>(rank);
    ring.to = static_cast<int>((rank + 1) % ranks);
    ring.depth = 2;
    plan.channels.push_back(ring);
    const Operand to = message(rank, codec), from = message((rank + ranks - 1) % ranks, codec);
    const auto at = [&](uint32_t back) { return (rank + 2 * ranks - back) % ranks; };
    std::vector<Step> steps = {copy(chunk(Buffer::input, rank), {to})};
    for (uint32_t step = 1; step + 1 < ranks; ++step)
      steps.push_back(reduce({from, chunk(Buffer::input, at(step))}, {to}));
    steps.push_back(reduce({from, chunk(Buffer::input, at(ranks - 1))}, {chunk(Buffer::output, at(ranks - 1)), to}));
    for (uint32_t step = ranks; step + 2 < 2 * ranks; ++step)
      steps.push_back(copy(from, {chunk(Buffer::output, at(step)), to}));
    steps.push_back(copy(from, {chunk(Buffer::output, at(2 * ranks - 2))}));
    plan.ranks[rank].groups = {{std::move(steps)}};
  }
  return plan;
}

// All-gather by puts into the peers' output, with semaphores before (the peer has entered) and after.
inline Plan put_all_gather_plan(uint32_t ranks) {
  Plan plan = all_pairs_plan("all_gather puts", plan::Operation::all_gather, ranks, 0);
  for (plan::Channel& channel : plan.channels) channel.kind = plan::ChannelKind::memory;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<uint32_t> to, from;
    for (uint32_t step = 1; step < ranks; ++step) {
      to.push_back(rank * ranks + (rank + step) % ranks);
      from.push_back((rank + step) % ranks * ranks + rank);
    }
    std::vector<Step> steps = {on_channels(StepKind::signal, to), on_channels(StepKind::wait, from),
                               copy(chunk(Buffer::input, 0), {chunk(Buffer::output, rank)})};
    for (const uint32_t channel : to)
      steps.push_back(copy(chunk(Buffer::input, 0), {remote(Buffer::output, rank, channel)}));
    steps.push_back(on_channels(StepKind::signal, to));
    steps.push_back(on_channels(StepKind::wait, from));
    plan.ranks[rank].groups = {{std::move(steps)}};
  }
  return plan;
}

// All-reduce through packets in the peers' scratch.
inline Plan packets_all_reduce_plan(uint32_t ranks, ncast_codec codec) {
  Plan plan = all_pairs_plan("all_reduce packets", plan::Operation::all_reduce, ranks, 0);
  plan.scratch_copies = 2;
  for (plan::Channel& channel : plan.channels) channel.kind = plan::ChannelKind::memory;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    plan.ranks[rank].scratch_chunks = ranks;
    std::vector<Operand> to, sources;
    for (uint32_t step = 1; step < ranks; ++step) {
      to.push_back(remote(Buffer::scratch, rank, rank * ranks + (rank + step) % ranks));
      to.back().packets = true;
      to.back().codec = codec;
    }
    for (uint32_t from = 0; from < ranks; ++from) {
      sources.push_back(from == rank ? chunk(Buffer::input, 0) : chunk(Buffer::scratch, from));
      sources.back().packets = from != rank;
      if (from != rank) sources.back().codec = codec;
    }
    plan.ranks[rank].groups = {
        {{copy(chunk(Buffer::input, 0), std::move(to)), reduce(std::move(sources), {chunk(Buffer::output, 0)})}}};
  }
  return plan;
}

// All-gather between four ranks, from each to the next: as packets in the next rank's scratch, as messages, and as
// packets in the own scratch, which the next rank gets.
inline Plan packets_relay_plan(ncast_codec codec) {
  constexpr uint32_t ranks = 4;
  Plan plan;
  plan.name = "all_gather packets";
  plan.operation = plan::Operation::all_gather;
  plan.scratch_copies = 2;
  plan.ranks.resize(ranks);
  for (const plan::ChannelKind kind : {plan::ChannelKind::ring, plan::ChannelKind::memory})
    for (int rank = 0; rank < int{ranks}; ++rank)
      plan.channels.push_back(
          {kind, rank, (rank + 1) % int{ranks}, kind == plan::ChannelKind::ring ? 2u : 0u, false, 0, {}});
  const auto as_packets = [&](Operand operand) {
    operand.packets = true;
    operand.codec = codec;
    return operand;
  };
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    plan.ranks[rank].scratch_chunks = 2;
    const auto at = [&](uint32_t back) { return chunk(Buffer::output, (rank + ranks - back) % ranks); };
    const uint32_t from = (rank + ranks - 1) % ranks;
    const Operand sent = as_packets(remote(Buffer::scratch, 0, ranks + rank));
    const Operand received = as_packets(chunk(Buffer::scratch, 0)), kept = as_packets(chunk(Buffer::scratch, 1));
    plan.ranks[rank].groups = {
        {{copy(chunk(Buffer::input, 0), {at(0), sent}), copy(received, {at(1), message(rank, codec)}),
          copy(message(from, codec), {kept, at(2)}),
          copy(as_packets(remote(Buffer::scratch, 1, ranks + from)), {at(3)})}}};
  }
  return plan;
}

// All-reduce between two ranks in which a second group stores what the first has reduced into scratch, after it.
inline Plan two_group_plan(uint32_t ranks, ncast_codec codec, bool by_barrier) {
  Plan plan = all_reduce_one_shot_plan(ranks, codec);
  plan.name = by_barrier ? "all_reduce barrier" : "all_reduce after";
  for (plan::Rank& rank : plan.ranks) {
    rank.scratch_chunks = 1;
    rank.groups[0].steps[1].to = {chunk(Buffer::scratch, 0)};
    Step store = copy(chunk(Buffer::scratch, 0), {chunk(Buffer::output, 0)});
    Step barrier;
    barrier.kind = StepKind::barrier;
    if (by_barrier) {
      rank.barriers = {{0, 1}};
      rank.groups[0].steps.push_back(barrier);
      rank.groups.push_back({{barrier, store}});
    } else {
      store.after = {{0, 1}};
      rank.groups.push_back({{store}});
    }
  }
  return plan;
}

}  // namespace narrowcast::test
