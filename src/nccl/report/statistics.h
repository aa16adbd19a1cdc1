// What became of the calls of each communicator, written as JSON to NARROWCAST_STATS.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "narrowcast/comm.h"
#include "nccl/abi/operations.h"

namespace narrowcast::nccl {

struct OperationCount {
  uint64_t taken = 0, forwarded = 0;
  uint64_t captured = 0;                                  // of those taken: into CUDA graphs; replays are not seen
  uint64_t predicted = 0;                                 // of those outside of graphs: by the cost model
  double saved_microseconds = 0;                          // by them
  std::vector<std::pair<const char*, uint64_t>> reasons;  // why calls were forwarded
};

using SentByOperation = std::array<ncast_operation_counters, operation_count>;

// Of one communicator. Outlives it. Any thread.
class Statistics {
 public:
  Statistics(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  void set_id(uint64_t id);
  // Memory that the rank has given the engine for it.
  void set_scratch(uint64_t bytes);
  // saved_microseconds: nothing where it is not known.
  void count_taken(Operation operation, std::optional<double> saved_microseconds);
  void count_captured(Operation operation);
  void count_forwarded(Operation operation, const char* why);
  // What the engine has counted so far of what this rank sent.
  void set_sent(const SentByOperation& sent);

  int rank() const { return rank_; }
  std::string json() const;

 private:
  const int rank_, ranks_;
  mutable std::mutex mutex_;
  uint64_t id_ = 0;  // 0: the ranks have not agreed on one
  uint64_t scratch_bytes_ = 0;
  std::optional<SentByOperation> sent_;
  OperationCount operations_[operation_count];
};

// The object lives until the process ends.
std::shared_ptr<Statistics> add_statistics(int rank, int ranks);

// Where statistics are written, and what the file says about the process.
struct StatisticsOutput {
  std::string path;           // %p: process id, %r: rank in the first communicator; empty: nothing is written
  double period_seconds = 0;  // between writes; 0: only at exit
  std::string nccl_path, nccl_version;
  void (*refresh)() = nullptr;  // called before each write to update what was sent
};

// Writes the file when the process ends, before the libraries loaded so far are torn down. May be called again after loading
// another library; the first output stays.
void write_statistics_at_exit(const StatisticsOutput& output);

// Writes the file when period_seconds have passed since the last time.
void write_statistics_when_due();

}  // namespace narrowcast::nccl
