#include "plan/simulate/task_lists.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "plan/simulate/kernel.h"
#include "plan/simulate/stages.h"

namespace narrowcast::plan::simulate {
namespace {

// The resources of a rank: directions of its interfaces, and its CTAs.
enum Port : uint32_t { link_out, link_in, network_out, network_in, sms, ports };

// The bytes of partial sums relative to those of the values, which are assumed to have 16 bits.
constexpr double partial_share = 2;

constexpr double bytes_per_us(double gbps) { return gbps * 1e3; }

// Merges equal loads and drops empty ones.
std::vector<Load> join_equal(const std::vector<Load>& loads) {
  std::map<std::pair<uint32_t, double>, size_t> number_of;
  std::vector<Load> joined;
  for (const Load& load : loads) {
    if (load.amount == 0) continue;
    const auto [number, is_new] = number_of.try_emplace({load.resource, load.amount}, joined.size());
    if (is_new)
      joined.push_back(load);
    else
      joined[number->second].times += load.times;
  }
  return joined;
}

// A warp loads the blocks that it sends ahead, except the first one.
void load_ahead(std::vector<Task>* tasks) {
  bool is_first = true;
  for (Task& task : *tasks) {
    if (task.first_us == 0) continue;
    if (!is_first) task.first_us = 0;
    is_first = false;
  }
}

}  // namespace

TaskLists::TaskLists(const Plan& plan, const Machine& machine, const Options& options, const Batches& batches)
    : first_blocks_share_links(batches.has_turns && is_raw(plan)),
      plan_(plan),
      machine_(machine),
      options_(options),
      chunk_bytes_(batches.chunk_bytes),
      has_turns_(batches.has_turns),
      codec_share_(codec_share_of(plan, machine, options)),
      bytes_(plan.ranks.size() * ports),
      response_bytes_(bytes_.size()) {
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    capacities.insert(capacities.end(), {bytes_per_us(machine.link_gbps), bytes_per_us(machine.link_gbps),
                                         bytes_per_us(machine.network_gbps), bytes_per_us(machine.network_gbps),
                                         static_cast<double>(machine.ctas)});
  }
  const auto host = [&](int rank) { return rank / machine.gpus_per_host; };
  for (const Channel& channel : plan.channels) {
    const bool is_within = channel.kind == ChannelKind::multicast || host(channel.from) == host(channel.to);
    latencies.push_back(channel.from == channel.to && channel.kind != ChannelKind::multicast ? 0
                        : !is_within      ? machine.network_latency_us
                        : channel.packets ? machine.link_packets_latency_us
                                          : machine.link_latency_us);
  }
  for (uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    std::vector<uint32_t>& numbers = task_list_of_.emplace_back();
    const double group_ctas = options.ctas_per_group != 0 ? options.ctas_per_group : machine.ctas;
    const auto working =
        std::ranges::count_if(plan.ranks[rank].groups, [](const Group& group) { return !group.steps.empty(); });
    shares_ctas_ = static_cast<double>(working) * group_ctas > machine.ctas;
    for (uint32_t group = 0; group < plan.ranks[rank].groups.size(); ++group) {
      TaskList task_list{rank, group, static_cast<uint32_t>(capacities.size()), {}};
      add_tasks(plan.ranks[rank].groups[group].steps, 1, &task_list);
      load_ahead(&task_list.tasks);
      numbers.push_back(task_list.tasks.empty() ? none : static_cast<uint32_t>(all.size()));
      if (task_list.tasks.empty()) continue;
      capacities.push_back(group_ctas);
      all.push_back(std::move(task_list));
    }
  }
  count_transfers(batches.count);
}

void TaskLists::divide_into_stages() {
  const Stages found = stages_of(plan_);
  if (found.empty()) return;
  for (TaskList& task_list : all) {
    for (Task& task : task_list.tasks) {
      task.stage = found[task_list.rank][task_list.group][task.number];
      stages = std::max(stages, task.stage + 1);
    }
    std::ranges::sort(task_list.tasks, {}, [](const Task& task) { return std::pair(task.stage, task.number); });
  }
}

// Responses to received data use the link, too.
void TaskLists::count_transfers(uint32_t batches) {
  const auto leave_for_values = [&](size_t port, size_t other) {
    if (bytes_[port] > 0) capacities[port] *= bytes_[port] / (bytes_[port] + response_bytes_[other]);
  };
  for (size_t first = 0; first < bytes_.size(); first += ports) {
    leave_for_values(first + link_out, first + link_in);
    leave_for_values(first + link_in, first + link_out);
  }
  for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
    const size_t first = rank * ports;
    sent_bytes.push_back((bytes_[first + link_out] + bytes_[first + network_out]) * batches);
  }
}

void TaskLists::add_tasks(const std::vector<Step>& steps, uint32_t repeats, TaskList* task_list) {
  for (uint32_t number = 0; number < steps.size(); ++number) {
    const Step& step = steps[number];
    if (step.kind != StepKind::loop) {
      task_list->tasks.push_back(task_of(*task_list, step, chunk_bytes_ * step.count / repeats));
      task_list->tasks.back().number = number;
      continue;
    }
    uint32_t widest = 1;
    for (const Step& inner : step.body) widest = std::max(widest, inner.count);
    const double unit = std::max<double>(1, static_cast<double>(step.unit_bytes));
    const auto iterations = static_cast<uint32_t>(
        std::clamp(std::ceil(chunk_bytes_ * widest / unit), 1.0, static_cast<double>(options_.max_batches)));
    const size_t first = task_list->tasks.size();
    for (uint32_t i = 0; i < iterations; ++i) add_tasks(step.body, iterations, task_list);
    for (size_t i = first; i < task_list->tasks.size(); ++i) {
      task_list->tasks[i].number = number;
      task_list->tasks[i].is_last_part = i + 1 == task_list->tasks.size();
    }
  }
}

void TaskLists::add_link_loads(uint32_t from, uint32_t to, double bytes, bool packets, std::vector<Load>* transfer) {
  if (from == to) return;
  const auto host = [&](uint32_t rank) { return static_cast<int>(rank) / machine_.gpus_per_host; };
  const bool within = host(from) == host(to);
  // Packets have a lower rate on links than payloads in slots.
  if (packets && within) bytes *= machine_.link_gbps / machine_.link_packets_gbps;
  const Port out = within ? link_out : network_out, in = within ? link_in : network_in;
  const double responses =
      !within ? 0 : bytes * (packets ? machine_.link_packets_response_share : machine_.link_response_share);
  for (const uint32_t resource : {from * ports + out, to * ports + in}) {
    transfer->push_back({resource, 1, bytes});
    bytes_[resource] += bytes;
    response_bytes_[resource] += responses;
  }
}

Task TaskLists::task_of(const TaskList& task_list, const Step& step, double bytes) {
  const uint32_t rank = task_list.rank;
  Task task;
  task.step = &step;
  task.fixed_us = machine_.step_us;
  if (step.from.empty()) return task;
  std::vector<Load> transfer;
  double cta_us = 0;  // work of a CTA that executes the task alone
  const auto add_work = [&](double gbps, double times = 1) { cta_us += times * bytes / bytes_per_us(gbps); };
  // A payload that is only forwarded is neither decoded nor encoded.
  const auto is_passed_on = [&](const Operand& to) {
    return step.kind == StepKind::copy && step.from[0].place == Place::message && to.place == Place::message &&
           to.codec == step.from[0].codec;
  };
  const bool only_passes_on = std::ranges::all_of(step.to, is_passed_on);
  bool encodes = false, sends_slots = false, gets = false;
  uint32_t decoded = 0, received_slots = 0;
  const auto add = [&](const Operand& operand, bool is_source) {
    const bool coded = operand.codec != NCAST_CODEC_RAW;
    const double wire_bytes = (operand.partial ? partial_share : 1) * (coded ? bytes * options_.ratio : bytes);
    add_work(machine_.cta_move_gbps);
    if (is_source && coded && !only_passes_on) {
      add_work(codec_share_ * machine_.cta_decode_gbps);
      ++decoded;
    }
    if (!is_source) encodes |= coded && !is_passed_on(operand);
    uint32_t holder = rank;
    if (operand.place == Place::everywhere) {
      (is_source ? gets : task.puts) = true;
      for (int other : plan_.channels[operand.channel].ranks) {
        const auto peer = static_cast<uint32_t>(other);
        is_source ? add_link_loads(peer, rank, wire_bytes, false, &transfer)
                  : add_link_loads(rank, peer, wire_bytes, false, &transfer);
      }
    } else if (operand.has_channel()) {
      const Channel& channel = plan_.channels[operand.channel];
      const auto from = static_cast<uint32_t>(channel.from), to = static_cast<uint32_t>(channel.to);
      holder = from == rank ? to : from;
      const bool packets = operand.packets || channel.packets;
      gets |= is_source && operand.place == Place::remote;
      task.puts |= !is_source && operand.place == Place::remote && !packets;
      if (operand.place == Place::message && !is_source) task.sends.push_back(operand.channel);
      if (operand.place == Place::message && !packets) {
        if (is_source)
          ++received_slots;
        else
          sends_slots = true;
      }
      if (!is_source) add_link_loads(rank, holder, wire_bytes, packets, &transfer);
      if (is_source && operand.place == Place::remote) add_link_loads(holder, rank, wire_bytes, packets, &transfer);
    }
    if (!operand.packets) return;
    for (uint32_t chunk = 0; chunk < step.count; ++chunk) {
      const auto [cell, is_new] = packet_cells_.try_emplace(std::tuple(holder, operand.buffer, operand.chunk + chunk),
                                                            static_cast<uint32_t>(packet_cells_.size()));
      (is_source ? task.reads_packets : task.writes_packets).push_back(cell->second);
    }
  };
  for (const Operand& operand : step.from) add(operand, true);
  for (const Operand& operand : step.to) add(operand, false);
  if (encodes) add_work(codec_share_ * machine_.cta_encode_gbps);  // once for all destinations
  // Stores to other ranks are asynchronous. But warps that reduce have a single buffer for output, and a single
  // micro-batch stands for many blocks, which do not fit a ring.
  task.posts = options_.max_batches > 1 && !has_turns_ && !gets && !transfer.empty();
  // A warp handles its sources one after another. Only payloads that are not reduced are loaded ahead.
  (step.kind == StepKind::copy && options_.max_batches > 1 ? task.load_us : task.fixed_us) +=
      machine_.slot_latency_us * received_slots;
  // Values to send are loaded while the warp works on an earlier block. Received values have already been loaded.
  if (sends_slots && received_slots == 0)
    (task.posts || has_turns_ ? task.first_us : task.fixed_us) += machine_.slot_latency_us;
  task.fixed_us += machine_.coded_latency_us * (decoded + (encodes ? 1 : 0));
  if (step.kind == StepKind::reduce) {
    add_work(machine_.cta_reduce_gbps, static_cast<double>(step.from.size()));
    if (received_slots != 0) task.fixed_us += machine_.reduce_latency_us;
  }
  const Load of_rank{rank * ports + sms, 1, shares_ctas_ ? cta_us : 0};
  task.first_load = static_cast<uint32_t>(loads_.size());
  const auto add_loads = [&](const std::vector<Load>& loads) {
    loads_.insert(loads_.end(), loads.begin(), loads.end());
    return static_cast<uint32_t>(loads.size());
  };
  task.work_loads = add_loads(join_equal({of_rank, {task_list.ctas, 1, cta_us}}));
  task.transfer_loads = add_loads(join_equal(transfer));
  return task;
}

}  // namespace narrowcast::plan::simulate
