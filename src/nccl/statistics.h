// What became of the calls of each communicator, written as JSON to NARROWCAST_STATS.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "nccl/operations.h"

namespace narrowcast::nccl {

struct OperationCount {
  uint64_t taken = 0, forwarded = 0;
  uint64_t raw_bytes = 0;                                 // that this rank sent in taken calls
  std::vector<std::pair<const char*, uint64_t>> reasons;  // why calls were forwarded
};

// Of one communicator. Outlives it. Any thread.
class Statistics {
 public:
  Statistics(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  void set_id(uint64_t id);
  void count_taken(Operation operation, uint64_t raw_bytes);
  void count_forwarded(Operation operation, const char* why);
  // Totals of the engine's counters so far.
  void set_totals(uint64_t raw_bytes, uint64_t wire_bytes);

  int rank() const { return rank_; }
  std::string json() const;

 private:
  const int rank_, ranks_;
  mutable std::mutex mutex_;
  uint64_t id_ = 0;  // 0: the ranks have not agreed on one
  uint64_t engine_raw_bytes_ = 0, engine_wire_bytes_ = 0;
  OperationCount operations_[operation_count];
};

// Kept until the process ends.
std::shared_ptr<Statistics> add_statistics(int rank, int ranks);

// Writes the file at the end of the process, before what has been loaded until now is torn down. `refresh` is called
// before each write, to bring totals up to date.
void write_statistics_at_exit(void (*refresh)());

// Writes the file when NARROWCAST_STATS_SECONDS have gone since the last time.
void write_statistics_when_due();

}  // namespace narrowcast::nccl
