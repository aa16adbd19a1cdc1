// Plans whose values move in messages of rings.
#include "support/plan_parts.h"

namespace narrowcast::plan::verify::testing {

Plan ring_all_gather(int ranks, uint32_t chunks, uint32_t depth) {
  Plan plan = empty_plan(Operation::all_gather, ranks, chunks);
  plan.name = named("ring all-gather", ranks);
  std::vector<uint32_t> next;
  for (int rank = 0; rank < ranks; ++rank) next.push_back(add_ring(plan, rank, (rank + 1) % ranks, depth));
  for (int rank = 0; rank < ranks; ++rank) {
    const uint32_t to = next[u(rank)], from = next[u((rank + ranks - 1) % ranks)];
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      add(plan, rank, copy(input(chunk), {output(u(rank) * chunks + chunk), message(to)}));
      for (int step = 1; step < ranks; ++step) {
        std::vector<Operand> destinations = {output(u((rank + ranks - step) % ranks) * chunks + chunk)};
        if (step != ranks - 1) destinations.push_back(message(to));
        add(plan, rank, copy(message(from), destinations));
      }
    }
  }
  return plan;
}

Plan ring_all_reduce(int ranks, uint32_t depth) {
  Plan plan = empty_plan(Operation::all_reduce, ranks, u(ranks));
  plan.name = named("ring all-reduce", ranks);
  std::vector<uint32_t> next;
  for (int rank = 0; rank < ranks; ++rank) next.push_back(add_ring(plan, rank, (rank + 1) % ranks, depth));
  for (int rank = 0; rank < ranks; ++rank) {
    const Operand to = message(next[u(rank)]), from = message(next[u((rank + ranks - 1) % ranks)]);
    const auto chunk = [&](int step) { return u((rank + 2 * ranks - step) % ranks); };
    add(plan, rank, copy(input(chunk(0)), {to}));
    for (int step = 1; step < ranks - 1; ++step) add(plan, rank, reduce({from, input(chunk(step))}, {to}));
    add(plan, rank, reduce({from, input(chunk(ranks - 1))}, {output(chunk(ranks - 1)), to}));
    for (int step = 0; step < ranks - 1; ++step) {
      std::vector<Operand> destinations = {output(chunk(step))};
      if (step != ranks - 2) destinations.push_back(to);
      add(plan, rank, copy(from, destinations));
    }
  }
  return plan;
}

Plan all_pairs_all_gather(int ranks) {
  Plan plan = empty_plan(Operation::all_gather, ranks);
  plan.name = named("all-pairs all-gather", ranks);
  Pairs rings = connect_all_rings(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Operand> destinations = {output(u(rank))};
    for (const uint32_t ring : outgoing(rings, rank)) destinations.push_back(message(ring));
    add(plan, rank, copy(input(0), destinations));
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) add(plan, rank, copy(message(rings[{peer, rank}]), {output(u(peer))}));
  }
  return plan;
}

Plan all_pairs_all_reduce(int ranks, uint32_t chunks) {
  Plan plan = empty_plan(Operation::all_reduce, ranks, chunks);
  plan.name = named("all-pairs all-reduce", ranks);
  Pairs rings = connect_all_rings(plan);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Operand> destinations, sources;
    for (const uint32_t ring : outgoing(rings, rank)) destinations.push_back(message(ring));
    for (int peer = 0; peer < ranks; ++peer) sources.push_back(peer == rank ? input(0) : message(rings[{peer, rank}]));
    add(plan, rank, copy(input(0), destinations, chunks));
    add(plan, rank, reduce(sources, {output(0)}, chunks));
  }
  return plan;
}

Plan two_shot_all_reduce(int ranks, uint32_t chunks) {
  Plan plan = empty_plan(Operation::all_reduce, ranks, u(ranks) * chunks);
  plan.name = named("two-shot all-reduce", ranks);
  Pairs rings = connect_all_rings(plan, 2);
  for (int rank = 0; rank < ranks; ++rank) {
    const uint32_t own = u(rank) * chunks;
    std::vector<Operand> sources, destinations = {output(own)};
    for (int peer = 0; peer < ranks; ++peer) {
      sources.push_back(peer == rank ? input(own) : message(rings[{peer, rank}]));
      if (peer == rank) continue;
      destinations.push_back(message(rings[{rank, peer}]));
      add(plan, rank, copy(input(u(peer) * chunks), {message(rings[{rank, peer}])}, chunks));
    }
    add(plan, rank, reduce(sources, destinations, chunks));
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) add(plan, rank, copy(message(rings[{peer, rank}]), {output(u(peer) * chunks)}, chunks));
  }
  return plan;
}

Plan recursive_doubling_all_reduce(int ranks) {
  Plan plan = empty_plan(Operation::all_reduce, ranks);
  plan.name = named("recursive doubling all-reduce", ranks);
  for (int distance = 1; distance < ranks; distance *= 2) {
    std::vector<uint32_t> rings;
    for (int rank = 0; rank < ranks; ++rank) rings.push_back(add_ring(plan, rank, rank ^ distance, 1));
    for (int rank = 0; rank < ranks; ++rank) {
      const int peer = rank ^ distance;
      const Operand own = distance == 1 ? input(0) : output(0), received = message(rings[u(peer)]);
      add(plan, rank, copy(own, {message(rings[u(rank)])}));
      add(plan, rank, peer < rank ? reduce({received, own}, {output(0)}) : reduce({own, received}, {output(0)}));
    }
  }
  return plan;
}

Plan tree_broadcast(int ranks, int root) {
  Plan plan = empty_plan(Operation::broadcast, ranks);
  plan.name = named("tree broadcast", ranks);
  plan.root = root;
  for (int i = 0; i < ranks; ++i) {
    const int rank = (i + root) % ranks;
    std::vector<Operand> destinations = {output(0)};
    for (const int child : {2 * i + 1, 2 * i + 2})
      if (child < ranks) destinations.push_back(message(add_ring(plan, rank, (child + root) % ranks, 1)));
    Operand source = input(0);
    for (uint32_t ring = 0; ring < plan.channels.size() && i != 0; ++ring)
      if (plan.channels[ring].to == rank) source = message(ring);
    add(plan, rank, copy(source, destinations));
  }
  return plan;
}

}  // namespace narrowcast::plan::verify::testing
