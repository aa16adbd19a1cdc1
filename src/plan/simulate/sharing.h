// How runs share CTAs and links.
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

// What a run uses: first CTAs, then links.
inline std::span<const Load> loads_of(const TaskLists& task_lists, const Run& run) {
  const Task& task = task_lists.all[run.task_list].tasks[run.task];
  return run.phase == Phase::working ? task_lists.work_of(task) : task_lists.transfer_of(task);
}

// Divides resources among the runs that use them, so that all get equal shares, except those that another resource
// limits to less (max-min fairness). The runs of a task list are warps, which share its CTAs in this way. What they send
// follows each other on a link, posted transfers as they were posted, others in the order of turns: it is first divided
// among the earliest transfers of all task lists, then what these leave among the next ones. The first blocks of warps
// can be an exception (TaskLists::first_blocks_share_links).
class Sharing {
 public:
  // Keeps references. Sets the rates of runs, and in `events` the times at which they end.
  Sharing(const TaskLists& task_lists, std::vector<Run>& runs, Agenda& events);

  // The run begins, or ends, to use its loads, of which it has some. All rates remain as they are until share().
  void begin(uint32_t index, double now);
  void end(uint32_t index);

  // Divides the resources whose users have changed. Called once everything that happens at `now` has happened, it does
  // not depend on the order of these events. Returns false if no users have changed.
  bool share(double now);

 private:
  // A transfer that uses a changed resource. They are sorted as they follow each other.
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
  std::vector<std::vector<uint32_t>> levels_;  // runs that use changed resources; earlier ones get their shares first
  std::vector<Transfer> transfers_;
  std::vector<uint32_t> filled_;     // resources that the runs of a level use
  std::vector<uint32_t> sharing_;    // by resource, loads that have no share yet
  std::vector<double> shares_;       // by resource, of each of these
  uint64_t calls_ = 0;               // of collect()
  std::vector<uint64_t> last_call_;  // by run, the last one that found it
};

}  // namespace narrowcast::plan::simulate
