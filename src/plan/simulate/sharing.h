// The sharing of CTAs and links among runs.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/simulate/agenda.h"
#include "plan/simulate/run.h"
#include "plan/simulate/task_lists.h"

namespace narrowcast::plan::simulate {

// The loads of a run: CTAs, then links.
inline std::span<const Load> loads_of(const TaskLists& task_lists, const Run& run) {
  const Task& task = task_lists.all[run.task_list].tasks[run.task];
  return run.phase == Phase::working ? task_lists.work_of(task) : task_lists.transfer_of(task);
}

// Divides resources among runs by max-min fairness: all get equal shares, except runs that another resource limits. The
// runs of a task list are warps, which share its CTAs this way. On a link their transfers follow each other instead,
// posted transfers by posting time and others by turn: the link is divided among the earliest transfers of all task
// lists, then the rest among the next ones. The first blocks of warps can be an exception
// (TaskLists::first_blocks_share_links).
class Sharing {
 public:
  // Keeps references. Sets the rates of runs, and their end times in `events`.
  Sharing(const TaskLists& task_lists, std::vector<Run>& runs, Agenda& events);

  // The run begins or ends to use its loads, of which it has at least one. Rates do not change before share().
  void begin(uint32_t index, double now);
  void end(uint32_t index);

  // Divides the resources whose users have changed, after all events at `now`, so that the result does not depend on
  // their order. Returns false if no users have changed.
  bool share(double now);

 private:
  // A transfer that uses a changed resource. The members are in sorting order.
  struct Transfer {
    uint32_t task_list;
    double posted;
    uint32_t turns, worker;
    size_t task;
    uint32_t index;
    auto operator<=>(const Transfer&) const = default;
  };

  std::span<const Load> loads(uint32_t index) const { return loads_[index]; }
  void mark_changed(std::span<const Load> used);
  void collect();
  bool follows(size_t number) const;
  bool is_first(const Transfer& transfer) const;  // of the micro-batches of its worker
  void fill(std::vector<uint32_t>* open, double now);
  void set_rate(uint32_t index, double rate, double now);
  void take(uint32_t index, double rate);
  bool is_used_up(const Load& load) const;

  const TaskLists& task_lists_;
  std::vector<Run>& runs_;
  Agenda& events_;
  std::vector<std::span<const Load>> loads_;   // by run, what it uses or used last
  std::vector<std::vector<uint32_t>> active_;  // by resource, the runs that use it, in any order
  std::vector<double> left_;                   // by resource, of its capacity
  std::vector<uint32_t> changed_;              // resources
  std::vector<char> is_changed_;               // by resource
  // Scratch of share().
  std::vector<std::vector<uint32_t>>
      levels_;  // runs that use changed resources, in the order in which levels get shares
  std::vector<Transfer> transfers_;
  std::vector<uint32_t> filled_;     // resources that the runs of a level use
  std::vector<uint32_t> sharing_;    // by resource, number of loads without a share
  std::vector<double> shares_;       // by resource, share of each of these loads
  uint64_t calls_ = 0;               // number of calls of collect()
  std::vector<uint64_t> last_call_;  // by run, the last call of collect() that found it
};

}  // namespace narrowcast::plan::simulate
