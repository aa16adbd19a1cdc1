#include "support/plans.h"

#include <algorithm>
#include <map>
#include <string>

namespace narrowcast::plan::verify::testing {

namespace {

// channels[{a, b}] is the channel from a to b.
using Pairs = std::map<std::pair<int, int>, uint32_t>;

template <typename Add>
Pairs connect_all(Plan& plan, Add add_one) {
  Pairs pairs;
  for (int a = 0; a < plan.rank_count(); ++a)
    for (int b = 0; b < plan.rank_count(); ++b)
      if (a != b) pairs[{a, b}] = add_one(a, b);
  return pairs;
}
Pairs connect_all_rings(Plan& plan, uint32_t depth = 1) {
  return connect_all(plan, [&](int a, int b) { return add_ring(plan, a, b, depth); });
}
Pairs connect_all_memory(Plan& plan) {
  return connect_all(plan, [&](int a, int b) { return add_memory(plan, a, b); });
}

// The channels from a rank to all others, or from all others to it.
std::vector<uint32_t> outgoing(const Pairs& pairs, int rank) {
  std::vector<uint32_t> channels;
  for (const auto& [pair, channel] : pairs)
    if (pair.first == rank) channels.push_back(channel);
  return channels;
}
std::vector<uint32_t> incoming(const Pairs& pairs, int rank) {
  std::vector<uint32_t> channels;
  for (const auto& [pair, channel] : pairs)
    if (pair.second == rank) channels.push_back(channel);
  return channels;
}

uint32_t u(int rank) { return static_cast<uint32_t>(rank); }

std::string named(const char* name, int ranks) { return std::string(name) + ", " + std::to_string(ranks) + " ranks"; }

}  // namespace

Plan empty_plan(Operation operation, int ranks, uint32_t chunks, uint32_t groups) {
  Plan plan;
  plan.operation = operation;
  plan.chunks = chunks;
  plan.ranks.resize(static_cast<size_t>(ranks));
  for (Rank& rank : plan.ranks) rank.groups.resize(groups);
  if (operation == Operation::all_to_all) plan.in_place = InPlace::no;
  return plan;
}

static uint32_t add_channel(Plan& plan, ChannelKind kind, int from, int to) {
  Channel& channel = plan.channels.emplace_back();
  channel.kind = kind;
  channel.from = from;
  channel.to = to;
  return static_cast<uint32_t>(plan.channels.size() - 1);
}
uint32_t add_ring(Plan& plan, int from, int to, uint32_t depth) {
  const uint32_t ring = add_channel(plan, ChannelKind::ring, from, to);
  plan.channels[ring].depth = depth;
  return ring;
}
uint32_t add_memory(Plan& plan, int from, int to, uint32_t initial) {
  const uint32_t channel = add_channel(plan, ChannelKind::memory, from, to);
  plan.channels[channel].initial = initial;
  return channel;
}
uint32_t add_port(Plan& plan, int from, int to) { return add_channel(plan, ChannelKind::port, from, to); }
uint32_t add_switch(Plan& plan) {
  const uint32_t channel = add_channel(plan, ChannelKind::multicast, 0, 0);
  for (int rank = 0; rank < plan.rank_count(); ++rank) plan.channels[channel].ranks.push_back(rank);
  return channel;
}
void add(Plan& plan, int rank, Step step, uint32_t group) {
  plan.ranks[static_cast<size_t>(rank)].groups[group].steps.push_back(std::move(step));
}

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

bool has_loop(const Plan& plan) {
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps)
        if (step.kind == StepKind::loop) return true;
  return false;
}

Plan unrolled(const Plan& plan, uint32_t parts) {
  Plan result = plan;
  result.chunks *= parts;
  const auto part_of = [&](const Step& step, uint32_t first, uint32_t count) {
    Step part = step;
    part.count = step.from.empty() ? 1 : count;
    for (auto* operands : {&part.from, &part.to})
      for (Operand& operand : *operands)
        if (operand.has_location()) operand.chunk = operand.chunk * parts + first;
    return part;
  };
  for (Rank& rank : result.ranks) {
    rank.scratch_chunks *= parts;
    std::vector<std::vector<uint32_t>> last(rank.groups.size());  // of each old step, its last new one
    for (size_t group = 0; group < rank.groups.size(); ++group) {
      std::vector<Step> steps;
      for (const Step& step : rank.groups[group].steps) {
        if (step.kind != StepKind::loop) {
          steps.push_back(part_of(step, 0, step.count * parts));
        } else {
          uint32_t widest = 1;
          for (const Step& inner : step.body) widest = std::max(widest, inner.count);
          steps.push_back(after(sync(), step.after));
          for (uint32_t part = 0; part < widest * parts; ++part) {
            for (const Step& inner : step.body)
              if (part < inner.count * parts) steps.push_back(part_of(inner, part, 1));
            steps.push_back(sync());
          }
        }
        last[group].push_back(static_cast<uint32_t>(steps.size() - 1));
      }
      rank.groups[group].steps = std::move(steps);
    }
    for (Group& group : rank.groups)
      for (Step& step : group.steps)
        for (StepId& id : step.after) id.step = last[id.group][id.step];
  }
  return result;
}

std::vector<Plan> correct_plans() {
  std::vector<Plan> plans;
  for (const int ranks : {2, 3, 4}) {
    plans.push_back(ring_all_gather(ranks, 2));
    plans.push_back(ring_all_reduce(ranks));
    plans.push_back(all_pairs_all_gather(ranks));
    plans.push_back(all_pairs_all_reduce(ranks));
    plans.push_back(two_shot_all_reduce(ranks));
    if (ranks != 3) plans.push_back(recursive_doubling_all_reduce(ranks));
    plans.push_back(tree_broadcast(ranks, 1));
    plans.push_back(memory_all_gather(ranks));
    plans.push_back(memory_all_reduce(ranks));
    plans.push_back(memory_all_reduce(ranks, Threads::independent));
    plans.push_back(port_all_to_all(ranks));
    plans.push_back(packet_all_reduce(ranks));
    plans.push_back(packet_two_shot_all_reduce(ranks));
    plans.push_back(switch_all_reduce(ranks));
    plans.push_back(grouped_reduce_scatter(ranks));
    plans.push_back(barrier_all_gather(ranks));
    plans.push_back(pipelined_all_gather(ranks));
  }
  // Its two copies of the scratch are larger than its input and output.
  plans.push_back(packet_all_reduce(6));
  return plans;
}

}  // namespace narrowcast::plan::verify::testing
