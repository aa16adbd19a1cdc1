// Counts the calls of each communicator, and writes them as JSON to NARROWCAST_STATS.
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

struct LossyCount {
  std::string rule, codec;  // what enables the codec
  uint64_t calls = 0;
};

struct OperationCount {
  uint64_t taken = 0, forwarded = 0;  // calls executed on the engine, and calls passed to NCCL
  uint64_t captured = 0;              // taken calls that were captured into CUDA graphs; replays are not counted
  uint64_t predicted = 0;             // taken calls outside of graphs for which the cost model has times
  double saved_microseconds = 0;      // predicted savings of these calls over NCCL
  std::vector<std::pair<const char*, uint64_t>> reasons;  // why calls were forwarded
  std::vector<std::pair<std::string, uint64_t>> plans;    // taken calls that ran a plan of the user, by its name
  std::vector<LossyCount> lossy;                          // taken calls whose codec is not exact
  std::vector<double> times;                              // of a sample of calls, divided by the predicted times
};

using TrafficByOperation = std::array<ncast_operation_counters, operation_count>;

// Statistics of one communicator. They outlive it. Thread-safe.
class Statistics {
 public:
  Statistics(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  void set_id(uint64_t id);
  // GPU memory that this rank holds for the communicator.
  void set_scratch(uint64_t bytes);
  // calls: how many equal ones. saved_microseconds: by each of them; nullopt if not known.
  void count_taken(Operation operation, uint64_t calls, std::optional<double> saved_microseconds);
  void count_captured(Operation operation, uint64_t calls);
  void count_plan(Operation operation, uint64_t calls, const char* plan);
  void count_lossy(Operation operation, uint64_t calls, const std::string& rule, const std::string& codec);
  // The time of a call, divided by the predicted one.
  void count_time(Operation operation, double ratio);
  void count_forwarded(Operation operation, const char* why);
  // The current counters of the engine's communicator.
  void set_traffic(const TrafficByOperation& traffic);
  // Called when the engine's communicator is destroyed. The counters of the next one start at zero and are added.
  void close_traffic();

  int rank() const { return rank_; }
  std::string json() const;

 private:
  const int rank_, ranks_;
  mutable std::mutex mutex_;
  uint64_t id_ = 0;  // 0: the ranks have not agreed yet
  uint64_t scratch_bytes_ = 0;
  std::optional<TrafficByOperation> traffic_;
  TrafficByOperation closed_traffic_ = {};
  OperationCount operations_[operation_count];
};

// The object lives until the process ends.
std::shared_ptr<Statistics> add_statistics(int rank, int ranks);

// Where statistics are written, and what the file says about the process.
struct StatisticsOutput {
  std::string path;           // %p: process id, %r: rank in the first communicator; empty: nothing is written
  double period_seconds = 0;  // between writes; 0: only at exit
  std::string nccl_path, nccl_version;
  void (*refresh)() = nullptr;  // called before each write to update the traffic
};

// Writes the file when the process ends, before the libraries loaded so far are torn down. May be called again after
// loading another library; the first output stays.
void write_statistics_at_exit(const StatisticsOutput& output);

// Writes the file when period_seconds have passed since the last time.
void write_statistics_when_due();

}  // namespace narrowcast::nccl
