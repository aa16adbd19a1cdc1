// Plans that access the memory of other ranks: by puts, gets, ports, packets and switches.
#include "support/plan_parts.h"

namespace narrowcast::plan::verify::testing {

Plan memory_all_gather(int ranks) {
  Plan plan = empty_plan(Operation::all_gather, ranks);
  plan.name = named("all-gather by puts", ranks);
  Pairs channels = connect_all_memory(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    add(plan, rank, relaxed_signal(outgoing(channels, rank)));
    add(plan, rank, relaxed_wait(incoming(channels, rank)));
    std::vector<Operand> destinations = {output(u(rank))};
    for (const uint32_t channel : outgoing(channels, rank)) destinations.push_back(remote(output(u(rank)), channel));
    add(plan, rank, copy(input(0), destinations));
    add(plan, rank, signal(outgoing(channels, rank)));
    add(plan, rank, wait(incoming(channels, rank)));
  }
  return plan;
}

Plan memory_all_reduce(int ranks, Threads threads) {
  Plan plan = empty_plan(Operation::all_reduce, ranks, u(ranks));
  plan.name = named("all-reduce by gets and puts", ranks);
  plan.in_place = InPlace::no;
  plan.threads = threads;
  Pairs channels = connect_all_memory(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    add(plan, rank, relaxed_signal(outgoing(channels, rank)));
    add(plan, rank, relaxed_wait(incoming(channels, rank)));
    if (threads == Threads::independent) add(plan, rank, sync());
    std::vector<Operand> sources, destinations = {output(u(rank))};
    for (int peer = 0; peer < ranks; ++peer) {
      const Operand own = input(u(rank));
      sources.push_back(peer == rank ? own : remote(own, channels[{rank, peer}]));
      if (peer != rank) destinations.push_back(remote(output(u(rank)), channels[{rank, peer}]));
    }
    add(plan, rank, reduce(sources, destinations));
    if (threads == Threads::independent) add(plan, rank, sync());
    add(plan, rank, signal(outgoing(channels, rank)));
    add(plan, rank, wait(incoming(channels, rank)));
  }
  return plan;
}

Plan port_all_to_all(int ranks) {
  Plan plan = empty_plan(Operation::all_to_all, ranks, 1, 2);
  plan.name = named("all-to-all by copy engines", ranks);
  Pairs channels = connect_all(plan, [&](int a, int b) { return add_port(plan, a, b); });
  Pairs entries = connect_all_memory(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    add(plan, rank, relaxed_signal(outgoing(entries, rank)));
    add(plan, rank, copy(input(u(rank)), {output(u(rank))}));
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      add(plan, rank, relaxed_wait({entries[{peer, rank}]}));
      add(plan, rank, copy(input(u(peer)), {remote(output(u(rank)), channels[{rank, peer}])}));
      add(plan, rank, signal({channels[{rank, peer}]}));
    }
    add(plan, rank, flush(outgoing(channels, rank)));
    add(plan, rank, wait(incoming(channels, rank)), 1);
  }
  return plan;
}

Plan packet_all_reduce(int ranks, uint32_t scratch_copies) {
  Plan plan = empty_plan(Operation::all_reduce, ranks);
  plan.name = named("all-reduce by packets", ranks);
  plan.threads = Threads::independent;
  plan.scratch_copies = scratch_copies;
  Pairs channels = connect_all_memory(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    plan.ranks[u(rank)].scratch_chunks = u(ranks);
    std::vector<Operand> sources, destinations;
    for (const uint32_t channel : outgoing(channels, rank))
      destinations.push_back(packets(remote(scratch(u(rank)), channel)));
    for (int peer = 0; peer < ranks; ++peer) sources.push_back(peer == rank ? input(0) : packets(scratch(u(peer))));
    add(plan, rank, copy(input(0), destinations));
    add(plan, rank, reduce(sources, {output(0)}));
  }
  return plan;
}

Plan packet_two_shot_all_reduce(int ranks, uint32_t scratch_copies) {
  Plan plan = empty_plan(Operation::all_reduce, ranks, u(ranks));
  plan.name = named("two-shot all-reduce by packets", ranks);
  plan.threads = Threads::independent;
  plan.scratch_copies = scratch_copies;
  Pairs channels = connect_all_memory(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    plan.ranks[u(rank)].scratch_chunks = 2 * u(ranks);
    std::vector<Operand> sources, destinations = {output(u(rank))};
    for (int peer = 0; peer < ranks; ++peer) {
      sources.push_back(peer == rank ? input(u(rank)) : packets(scratch(u(peer))));
      if (peer == rank) continue;
      const uint32_t channel = channels[{rank, peer}];
      destinations.push_back(packets(remote(scratch(u(ranks + rank)), channel)));
      add(plan, rank, copy(input(u(peer)), {packets(remote(scratch(u(rank)), channel))}));
    }
    add(plan, rank, reduce(sources, destinations));
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) add(plan, rank, copy(packets(scratch(u(ranks + peer))), {output(u(peer))}));
  }
  return plan;
}

Plan switch_all_reduce(int ranks) {
  Plan plan = empty_plan(Operation::all_reduce, ranks, u(ranks));
  plan.name = named("all-reduce by a switch", ranks);
  Pairs channels = connect_all_memory(plan);
  const uint32_t multicast = add_switch(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    add(plan, rank, relaxed_signal(outgoing(channels, rank)));
    add(plan, rank, relaxed_wait(incoming(channels, rank)));
    add(plan, rank, copy(everywhere(input(u(rank)), multicast), {everywhere(output(u(rank)), multicast)}));
    add(plan, rank, signal(outgoing(channels, rank)));
    add(plan, rank, wait(incoming(channels, rank)));
  }
  return plan;
}

}  // namespace narrowcast::plan::verify::testing
