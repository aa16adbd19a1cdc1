#include "plan/simulate/program.h"

#include <algorithm>
#include <cmath>

namespace narrowcast::plan::simulate {
namespace {

// The resources of a rank: directions of its interfaces, and its CTAs.
enum Port : uint32_t { link_out, link_in, network_out, network_in, sms, ports };

constexpr double bytes_per_us(double gbps) { return gbps * 1e3; }

PacketCell cell_of(uint32_t rank, const Operand& operand, uint32_t chunk) {
  return uint64_t{rank} << 40 | uint64_t{static_cast<uint8_t>(operand.buffer)} << 32 | (operand.chunk + chunk);
}

}  // namespace

Programs::Programs(const Plan& plan, const Machine& machine, const Options& options, uint32_t batches)
    : plan_(plan),
      machine_(machine),
      options_(options),
      chunk_bytes_(static_cast<double>(options.piece_bytes) / plan.chunks / batches) {
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    capacities.insert(capacities.end(), {bytes_per_us(machine.link_gbps), bytes_per_us(machine.link_gbps),
                                         bytes_per_us(machine.network_gbps), bytes_per_us(machine.network_gbps),
                                         static_cast<double>(machine.ctas)});
  }
  const auto host = [&](int rank) { return rank / machine.gpus_per_host; };
  for (const Channel& channel : plan.channels) {
    const bool is_within = channel.kind == ChannelKind::multicast || host(channel.from) == host(channel.to);
    latencies.push_back(channel.from == channel.to && channel.kind != ChannelKind::multicast ? 0
                        : is_within ? machine.link_latency_us
                                    : machine.network_latency_us);
  }
  for (uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    std::vector<uint32_t>& numbers = program_of_.emplace_back();
    for (uint32_t group = 0; group < plan.ranks[rank].groups.size(); ++group) {
      Program program{rank, group, static_cast<uint32_t>(capacities.size()), {}};
      add_tasks(plan.ranks[rank].groups[group].steps, 1, &program);
      numbers.push_back(program.tasks.empty() ? none : static_cast<uint32_t>(all.size()));
      if (program.tasks.empty()) continue;
      capacities.push_back(options.ctas_per_group != 0 ? options.ctas_per_group : machine.ctas);
      all.push_back(std::move(program));
    }
  }
  sent_bytes.assign(plan.ranks.size(), 0);
  for (const Program& program : all)
    for (const Task& task : program.tasks)
      for (const Load& load : task.loads)
        if (load.resource < plan.ranks.size() * ports &&
            (load.resource % ports == link_out || load.resource % ports == network_out))
          sent_bytes[load.resource / ports] += load.amount * batches;
}

void Programs::add_tasks(const std::vector<Step>& steps, uint32_t repeats, Program* program) const {
  for (uint32_t number = 0; number < steps.size(); ++number) {
    const Step& step = steps[number];
    if (step.kind != StepKind::loop) {
      program->tasks.push_back(task_of(*program, step, chunk_bytes_ * step.count / repeats));
      program->tasks.back().number = number;
      continue;
    }
    uint32_t widest = 1;
    for (const Step& inner : step.body) widest = std::max(widest, inner.count);
    const double unit = std::max<double>(1, static_cast<double>(step.unit_bytes));
    const auto iterations = static_cast<uint32_t>(
        std::clamp(std::ceil(chunk_bytes_ * widest / unit), 1.0, static_cast<double>(options_.max_batches)));
    const size_t first = program->tasks.size();
    for (uint32_t i = 0; i < iterations; ++i) add_tasks(step.body, iterations, program);
    for (size_t i = first; i < program->tasks.size(); ++i) {
      program->tasks[i].number = number;
      program->tasks[i].is_last_part = i + 1 == program->tasks.size();
    }
  }
}

void Programs::add_link_loads(uint32_t from, uint32_t to, double bytes, bool packets, Task* task) const {
  if (from == to) return;
  const auto host = [&](uint32_t rank) { return static_cast<int>(rank) / machine_.gpus_per_host; };
  const bool within = host(from) == host(to);
  // Packets use the link less well than payloads in slots.
  if (packets && within) bytes *= machine_.link_gbps / machine_.link_packets_gbps;
  task->loads.push_back({from * ports + (within ? link_out : network_out), bytes});
  task->loads.push_back({to * ports + (within ? link_in : network_in), bytes});
}

Task Programs::task_of(const Program& program, const Step& step, double bytes) const {
  const uint32_t rank = program.rank;
  Task task;
  task.step = &step;
  task.fixed_us = machine_.step_us;
  if (step.from.empty()) return task;
  double cta_us = 0;  // the work of one CTA that had the task for itself
  const auto add_work = [&](double gbps, double times = 1) { cta_us += times * bytes / bytes_per_us(gbps); };
  bool encodes = false, decodes = false, uses_slots = false;
  const auto add = [&](const Operand& operand, bool is_source) {
    const bool coded = operand.codec != NCAST_CODEC_RAW;
    const double wire_bytes = coded ? bytes * options_.ratio : bytes;
    add_work(machine_.cta_move_gbps);
    if (coded && is_source) add_work(machine_.cta_decode_gbps);
    (is_source ? decodes : encodes) |= coded;
    uint32_t holder = rank;
    if (operand.place == Place::everywhere) {
      for (int other : plan_.channels[operand.channel].ranks) {
        const auto peer = static_cast<uint32_t>(other);
        is_source ? add_link_loads(peer, rank, wire_bytes, false, &task)
                  : add_link_loads(rank, peer, wire_bytes, false, &task);
      }
    } else if (operand.has_channel()) {
      const Channel& channel = plan_.channels[operand.channel];
      const auto from = static_cast<uint32_t>(channel.from), to = static_cast<uint32_t>(channel.to);
      holder = from == rank ? to : from;
      const bool packets = operand.packets || channel.packets;
      uses_slots |= operand.place == Place::message && !packets;
      if (!is_source) add_link_loads(rank, holder, wire_bytes, packets, &task);
      if (is_source && operand.place == Place::remote) add_link_loads(holder, rank, wire_bytes, packets, &task);
    }
    if (!operand.packets) return;
    for (uint32_t chunk = 0; chunk < step.count; ++chunk)
      (is_source ? task.reads_packets : task.writes_packets).push_back(cell_of(holder, operand, chunk));
  };
  for (const Operand& operand : step.from) add(operand, true);
  for (const Operand& operand : step.to) add(operand, false);
  if (encodes) add_work(machine_.cta_encode_gbps);  // once for all destinations
  if (uses_slots) task.fixed_us += machine_.slot_latency_us;
  if (encodes || decodes) task.fixed_us += machine_.coded_latency_us;
  if (step.kind == StepKind::reduce) add_work(machine_.cta_reduce_gbps, static_cast<double>(step.from.size()));
  task.loads.push_back({rank * ports + sms, cta_us});
  task.loads.push_back({program.ctas, cta_us});
  return task;
}

}  // namespace narrowcast::plan::simulate
