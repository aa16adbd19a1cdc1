// A record of every call of this process, for `narrowcast try`. The file is mapped, so that it can be read while the
// process runs, and after it was killed. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "nccl/abi/call.h"

namespace narrowcast::nccl {

// The layout of the file, which python/narrowcast/_try/record.py reads: a header, then entries up to the first one of
// kind `none`, or up to the end of the file.
struct RecordHeader {
  char magic[8] = {'N', 'C', 'A', 'S', 'T', 'R', 'E', 'C'};
  uint32_t version = 1;
  uint32_t entry_bytes = 32;
  uint64_t pid = 0;
  uint64_t reserved = 0;
};

enum class RecordKind : uint8_t {
  none,
  communicator,  // `count`: its id, or 0 before the ranks have agreed; `launch`: ranks; `peer`: rank
  call,          // `time_ns`: host time when it was put on its stream
  mark,          // `time_ns`: host time when the program began a step
  launch,        // a sample of launches; `time_ns`: GPU time of its begin, after an event of the communicator that is
                 // the same for all its samples; `count`: its nanoseconds on the GPU
};

struct RecordEntry {
  uint64_t time_ns = 0;
  uint64_t count = 0;
  uint32_t communicator = 0;
  uint32_t launch = 0;  // number of the call, or of its group, among those of the communicator
  int32_t peer = 0;     // of transfers; otherwise the root
  uint8_t operation = 0, dtype = 0;
  uint8_t flags = 0;  // record_executed, record_captured
  RecordKind kind = RecordKind::none;
};
static_assert(sizeof(RecordHeader) == 32 && sizeof(RecordEntry) == 32);

inline constexpr uint8_t record_executed = 1;  // by the engine
inline constexpr uint8_t record_captured = 2;  // into a CUDA graph: replays are not recorded

// path: %p is replaced by the process id; empty: nothing is recorded. The file must not exist. The first path stays.
void start_recording(const std::string& path);
bool is_recording();
// The program begins a step.
void record_mark();

// The part of the record that is about one communicator.
class CommunicatorRecord {
 public:
  CommunicatorRecord(int rank, int ranks);

  // The ranks have agreed on an id.
  void set_id(uint64_t id) const;
  void add_call(const Call& call, uint8_t flags) const;
  // Times on the GPU of a launch.
  void add_time(uint32_t launch, double begin_ms, double duration_ms) const;
  // The number of the current launch, to which calls belong.
  uint32_t launch() const { return launch_; }
  void end_launch() { ++launch_; }

 private:
  const int rank_, ranks_;
  uint32_t number_ = 0;
  uint32_t launch_ = 0;
};

}  // namespace narrowcast::nccl
