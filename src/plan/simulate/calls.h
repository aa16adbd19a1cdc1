// When ranks begin their calls, which follow each other as in a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/simulate/task_lists.h"

namespace narrowcast::plan::simulate {

// A rank begins a call when it has ended the previous one. It ends a call when its steps are done and all other ranks
// have announced that they have begun it (channel/peer/call_word.h). Received messages keep ranks in step, but ranks
// that only send, such as the senders of a gather, drift apart: while one begins a call, others use the link of the
// receiver.
class Calls {
 public:
  Calls(const Plan& plan, const Machine& machine, const TaskLists& task_lists, bool repeats);

  size_t count() const { return calls_.size(); }  // to simulate
  double first_begin() const { return launch_us_; }

  // Extends the call to the time at which a transfer or step of the rank ends.
  void extend(uint32_t rank, uint32_t call, double time);
  // The steps of the rank's current call are done.
  void end(uint32_t rank) { ++ranks_[rank].ended; }

  struct Begin {
    uint32_t rank;
    double time;
  };
  // Begins the next call of a rank that can begin one.
  std::optional<Begin> next();

  double microseconds() const { return calls_.front().end; }
  double repeated_us() const;

 private:
  struct OfRank {
    bool works = false;
    double apart_us = 0;            // how much later than others it begins the second call
    uint32_t begun = 1, ended = 0;  // calls
    double end = 0;
  };
  struct OfCall {
    uint32_t begun = 0;  // by so many ranks
    double last_begin = 0, end = 0;
  };

  double launch_us_, announcement_us_;
  uint32_t working_ = 0;  // ranks
  std::vector<OfRank> ranks_;
  std::vector<OfCall> calls_;
};

}  // namespace narrowcast::plan::simulate
