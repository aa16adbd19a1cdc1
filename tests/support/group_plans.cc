// Plans with several groups on a rank.
#include "support/plan_parts.h"

namespace narrowcast::plan::verify::testing {

Plan grouped_reduce_scatter(int ranks) {
  Plan plan = empty_plan(Operation::reduce_scatter, ranks, 1, 3);
  plan.name = named("reduce-scatter with three groups", ranks);
  Pairs rings = connect_all_rings(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    plan.ranks[u(rank)].scratch_chunks = u(ranks);
    std::vector<Operand> sources;
    for (int peer = 0; peer < ranks; ++peer) {
      sources.push_back(peer == rank ? input(u(rank)) : scratch(u(peer)));
      if (peer == rank) continue;
      add(plan, rank, copy(input(u(peer)), {message(rings[{rank, peer}])}), 0);
      add(plan, rank, copy(message(rings[{peer, rank}]), {scratch(u(peer))}), 1);
    }
    add(plan, rank, after(reduce(sources, {output(0)}), {{0, u(ranks - 2)}, {1, u(ranks - 2)}}), 2);
  }
  return plan;
}

Plan barrier_all_gather(int ranks) {
  Plan plan = empty_plan(Operation::all_gather, ranks, 1, 2);
  plan.name = named("all-gather with barriers", ranks);
  Pairs rings = connect_all_rings(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    plan.ranks[u(rank)].scratch_chunks = u(ranks);
    plan.ranks[u(rank)].barriers = {{0, 1}};
    add(plan, rank, copy(input(0), {scratch(u(rank))}), 0);
    add(plan, rank, barrier(0), 0);
    add(plan, rank, barrier(0), 1);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      add(plan, rank, copy(scratch(u(rank)), {message(rings[{rank, peer}])}), 1);
      add(plan, rank, copy(message(rings[{peer, rank}]), {scratch(u(peer))}), 0);
    }
    add(plan, rank, barrier(0), 0);
    add(plan, rank, barrier(0), 1);
    for (int peer = 0; peer < ranks; ++peer) add(plan, rank, copy(scratch(u(peer)), {output(u(peer))}), 1);
  }
  return plan;
}

Plan pipelined_all_gather(int ranks) {
  Plan plan = empty_plan(Operation::all_gather, ranks, 1, 2);
  plan.name = named("pipelined all-gather", ranks);
  Pairs channels = connect_all_memory(plan), returns = connect_all_memory(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    plan.ranks[u(rank)].scratch_chunks = u(ranks);
    std::vector<Operand> destinations = {output(u(rank))};
    for (const uint32_t channel : outgoing(channels, rank)) destinations.push_back(remote(scratch(u(rank)), channel));
    add(plan, rank, loop({copy(input(0), destinations), signal(outgoing(channels, rank))}), 0);
    // Peers have read this call's parts before the next call overwrites them.
    add(plan, rank, wait(incoming(returns, rank)), 0);
    std::vector<Step> body = {wait(incoming(channels, rank))};
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) body.push_back(copy(scratch(u(peer)), {output(u(peer))}));
    add(plan, rank, loop(body), 1);
    add(plan, rank, signal(outgoing(returns, rank)), 1);
  }
  return plan;
}

Plan wide_all_reduce(int ranks, uint32_t groups, uint32_t count) {
  Plan plan = empty_plan(Operation::all_reduce, ranks, u(ranks) * groups * count, 2 * groups);
  plan.name = named("rings in many groups", ranks);
  for (uint32_t ring = 0; ring < groups; ++ring) {
    std::vector<uint32_t> sums, results;
    const int stride = 2 * static_cast<int>(ring) + 1;  // odd: a cycle through all ranks if they are a power of two
    for (int rank = 0; rank < ranks; ++rank) {
      sums.push_back(add_ring(plan, rank, (rank + stride) % ranks, 4));
      results.push_back(add_ring(plan, rank, (rank + stride) % ranks, 4));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const uint32_t previous = u((rank + ranks - stride % ranks) % ranks);
      const Operand to = message(sums[u(rank)]), from = message(sums[previous]);
      const auto chunk = [&](int step) {
        return (ring * u(ranks) + u(((rank - step * stride) % ranks + ranks) % ranks)) * count;
      };
      add(plan, rank, copy(input(chunk(0)), {to}, count), 2 * ring);
      for (int step = 1; step < ranks - 1; ++step)
        add(plan, rank, reduce({from, input(chunk(step))}, {to}, count), 2 * ring);
      add(plan, rank, reduce({from, input(chunk(ranks - 1))}, {output(chunk(ranks - 1))}, count), 2 * ring);
      const Operand next = message(results[u(rank)]), received = message(results[previous]);
      add(plan, rank, after(copy(output(chunk(ranks - 1)), {next}, count), {{2 * ring, u(ranks - 1)}}), 2 * ring + 1);
      for (int step = 0; step < ranks - 1; ++step) {
        std::vector<Operand> destinations = {output(chunk(step))};
        if (step != ranks - 2) destinations.push_back(next);
        add(plan, rank, copy(received, destinations, count), 2 * ring + 1);
      }
    }
  }
  return plan;
}

Plan wide_memory_all_gather(int ranks, uint32_t groups) {
  Plan plan = empty_plan(Operation::all_gather, ranks, groups, groups);
  plan.name = named("puts in many groups", ranks);
  Pairs entries = connect_all_memory(plan);
  std::vector<Pairs> channels;
  for (uint32_t group = 0; group < groups; ++group) channels.push_back(connect_all_memory(plan));
  for (int rank = 0; rank < ranks; ++rank) {
    plan.ranks[u(rank)].barriers.emplace_back();
    for (uint32_t group = 0; group < groups; ++group) plan.ranks[u(rank)].barriers[0].push_back(group);
    add(plan, rank, relaxed_signal(outgoing(entries, rank)), 0);
    add(plan, rank, relaxed_wait(incoming(entries, rank)), 0);
    for (uint32_t group = 0; group < groups; ++group) {
      const uint32_t place = u(rank) * groups + group;
      add(plan, rank, barrier(0), group);
      add(plan, rank, copy(input(group), {output(place)}), group);
      for (int offset = 1; offset < ranks; ++offset) {
        const uint32_t channel = channels[group][{rank, (rank + offset) % ranks}];
        add(plan, rank, copy(input(group), {remote(output(place), channel)}), group);
        if (ranks <= 8) add(plan, rank, signal({channel}), group);
      }
      if (ranks > 8) add(plan, rank, signal(outgoing(channels[group], rank)), group);
      add(plan, rank, wait(incoming(channels[group], rank)), group);
    }
  }
  return plan;
}

}  // namespace narrowcast::plan::verify::testing
