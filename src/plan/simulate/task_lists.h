// A plan as lists of tasks, with the work of each task on a machine.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "plan/simulate/batches.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::simulate {

// The use of a shared resource: a direction of a link or network interface (in bytes), or the CTAs of a rank or group
// (in microseconds of one CTA).
struct Load {
  uint32_t resource;
  uint32_t times;  // number of loads of this amount
  double amount;
};

struct Task {
  const Step* step = nullptr;
  uint32_t number = 0;       // of the step in its group
  uint32_t stage = 0;        // as in stages_of()
  bool is_last_part = true;  // of a step that a loop repeats
  double fixed_us = 0;       // latency that does not depend on rates
  double first_us = 0;       // additional, in the first micro-batch of a worker
  double load_us = 0;        // additional, for a payload that was not loaded ahead
  bool posts = false;        // whether the next step starts before the end of the transfer
  bool puts = false;         // whether signals wait for the transfer
  // What TaskLists::work_of() and transfer_of() return.
  uint32_t first_load = 0, work_loads = 0, transfer_loads = 0;
  std::vector<uint32_t> sends;                          // channels on which messages arrive after the transfer
  std::vector<uint32_t> reads_packets, writes_packets;  // cells: chunks that contain packets
};

struct TaskList {
  uint32_t rank = 0, group = 0;
  uint32_t ctas = 0;  // the resource that stands for the group's CTAs
  std::vector<Task> tasks;
};

class TaskLists {
 public:
  TaskLists(const Plan& plan, const Machine& machine, const Options& options, const Batches& batches);

  // Sorts the tasks of each task list by stage, if the plan can have stages.
  void divide_into_stages();

  uint32_t stages = 1;
  // Whether the first micro-batches of the workers of a task list share links instead of following each other: warps
  // that reduce begin together, but encoding spreads their sends.
  const bool first_blocks_share_links;
  std::vector<TaskList> all;       // of the groups that have steps
  std::vector<double> capacities;  // by resource, per microsecond
  std::vector<double> latencies;   // by channel, of a flight
  std::vector<double> sent_bytes;  // by rank, in the micro-batches of a call
  // The loads of a task: on CTAs, then on links.
  std::span<const Load> work_of(const Task& task) const { return {loads_.data() + task.first_load, task.work_loads}; }
  std::span<const Load> transfer_of(const Task& task) const {
    return {loads_.data() + task.first_load + task.work_loads, task.transfer_loads};
  }
  const std::vector<std::vector<uint32_t>>& task_list_of() const {
    return task_list_of_;
  }  // by rank and group; or none

  size_t packet_cells() const { return packet_cells_.size(); }

  static constexpr uint32_t none = ~uint32_t{0};

 private:
  void add_tasks(const std::vector<Step>& steps, uint32_t repeats, TaskList* task_list);
  Task task_of(const TaskList& task_list, const Step& step, double bytes);
  void count_transfers(uint32_t batches);
  void add_link_loads(uint32_t from, uint32_t to, double bytes, bool packets, std::vector<Load>* transfer);

  const Plan& plan_;
  const Machine& machine_;
  const Options& options_;
  double chunk_bytes_;        // of one micro-batch
  bool has_turns_;            // as in Batches
  bool shares_ctas_ = false;  // whether the groups of the current rank compete for its CTAs
  double codec_share_;        // fraction of the rates of codecs that the warps reach
  // Of a micro-batch, by resource: what links carry, and the responses to it in the other direction.
  std::vector<double> bytes_, response_bytes_;
  std::map<std::tuple<uint32_t, Buffer, uint32_t>, uint32_t> packet_cells_;  // numbers by rank, buffer and chunk
  std::vector<std::vector<uint32_t>> task_list_of_;
  std::vector<Load> loads_;  // of all tasks, contiguous for locality
};

}  // namespace narrowcast::plan::simulate
