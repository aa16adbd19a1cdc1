// How runs share CTAs and links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/simulate/agenda.h"
#include "plan/simulate/program.h"
#include "plan/simulate/run.h"

namespace narrowcast::plan::simulate {

// What a run uses: first CTAs, then links.
inline const std::vector<Load>& loads_of(const Programs& programs, const Run& run) {
  const Task& task = programs.all[run.program].tasks[run.task];
  return run.phase == Phase::working ? task.work : task.transfer;
}

// Divides resources among the runs that use them. The runs of a program are warps, which share its CTAs equally. What
// they send follows each other on a link: it is first divided among the earliest micro-batches of all programs, then
// what these leave among the next ones.
class Sharing {
 public:
  // Keeps references. Sets the rates of runs, and in `events` the times at which they end.
  Sharing(const Programs& programs, std::vector<Run>& runs, Agenda& events);

  // The run begins, or ends, to use its loads.
  void begin(uint32_t index, double now);
  void end(uint32_t index, double now);

 private:
  // A run among those that share a resource.
  struct Member {
    uint32_t before;  // how many runs of the program get their share earlier
    uint32_t program, batches, worker;
    size_t task;
    uint32_t index;
  };

  const std::vector<Load>& loads(const Run& run) const { return loads_of(programs_, run); }
  void share(const std::vector<Load>& used, double now);
  void share_equally(std::span<const Member> members, double now);
  void stop(uint32_t index, double now);
  void give_back(const Run& run);
  void take(const Run& run);
  void change_left(const Run& run, double rate);
  bool is_used_up(const Load& load) const;
  bool gets_nothing(const Run& run) const;
  double rate_of(const Load& load, uint32_t sharing, double most) const;

  const Programs& programs_;
  std::vector<Run>& runs_;
  Agenda& events_;
  std::vector<std::vector<uint32_t>> active_;  // by resource, the runs that use it, in any order
  std::vector<double> left_;                   // by resource, of its capacity
  std::vector<uint32_t> sharing_;              // by resource; scratch of share_equally()
  std::vector<Member> members_;                // scratch of share()
  uint64_t shares_ = 0;                        // calls of share()
  std::vector<uint64_t> last_share_;           // by run, the last of these calls that it was a member of
};

}  // namespace narrowcast::plan::simulate
