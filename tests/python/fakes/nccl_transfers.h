// What stands for NCCL moves: communicators over shared memory, launches of sends and receives, groups of them.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

extern "C" int fake_launch(void* stream, int (*function)(void*), void* argument);
extern "C" int fake_graphs_alive();
extern "C" int cuEventCreate(void** event, unsigned flags);
extern "C" int cuEventRecord(void* event, void* stream);
extern "C" int cuStreamWaitEvent(void* stream, void* event, unsigned flags);

namespace {

constexpr int most_ranks = 4;
constexpr size_t most_bytes = 8 << 20;
constexpr int unhandled_cuda_error = 1, system_error = 2, invalid_argument = 4, invalid_usage = 5, in_progress = 7;
constexpr int first_user_reduction = 5;
constexpr int launch_failed = 719;  // CUDA_ERROR_LAUNCH_FAILED

struct Box {
  std::atomic<uint32_t> full;
  char data[most_bytes];
};

struct Comm {
  int rank, ranks;
  Box (*boxes)[most_ranks];
  std::string name;
  int device = 0;
  bool blocking = true;
  int state = 0;  // of a communicator that does not block
  int splits = 0;
  std::atomic<bool> aborted{false};
  bool revoked = false;    // takes no calls
  bool finalized = false;  // takes no calls
  bool suspended = false;  // takes no calls
  bool destroyed = false;
  std::vector<float> factors = {};  // of user reductions
  const char* window = nullptr;
  size_t window_bytes = 0;
  std::vector<void*> registered = {};  // the ends
};

struct Transfer {
  Comm* comm;
  bool is_send;
  void* buffer;
  size_t bytes;
  int peer;
};

// What one launch does: sends and receives as they can, then works on what came.
struct Job {
  std::vector<Transfer> transfers;
  std::vector<std::function<void()>> finishes;
};

thread_local int group_depth = 0;
thread_local Job* group_job = nullptr;
thread_local std::vector<void*> group_streams;

// A communicator that the end of a group makes. Of one that was split the handle is not known before.
struct Making {
  Comm* comm;
  Comm** later;
};
thread_local std::vector<Making> group_making;
thread_local std::vector<std::pair<Comm*, bool>> group_suspending;

int bytes_of(int type) {
  constexpr int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

// Of one communicator, direction and peer, in their order.
bool same_lane(const Transfer& a, const Transfer& b) {
  return a.comm == b.comm && a.is_send == b.is_send && a.peer == b.peer;
}

bool advance(const Transfer& transfer) {
  const Comm& comm = *transfer.comm;
  Box& box = transfer.is_send ? comm.boxes[comm.rank][transfer.peer] : comm.boxes[transfer.peer][comm.rank];
  if ((box.full.load() != 0) == transfer.is_send) return false;
  if (transfer.is_send)
    std::memcpy(box.data, transfer.buffer, transfer.bytes);
  else
    std::memcpy(transfer.buffer, box.data, transfer.bytes);
  box.full.store(transfer.is_send ? 1 : 0);
  return true;
}

int run(void* argument) {
  // Graphs run it again.
  const Job& job = *static_cast<Job*>(argument);
  std::vector<const Transfer*> left;
  for (const Transfer& transfer : job.transfers) left.push_back(&transfer);
  while (!left.empty()) {
    const size_t before = left.size();
    for (size_t i = 0; i < left.size();) {
      if (left[i]->comm->aborted.load()) return launch_failed;
      const auto comes_earlier = [&](const Transfer* other) { return same_lane(*other, *left[i]); };
      const auto here = left.begin() + static_cast<ptrdiff_t>(i);
      if (std::find_if(left.begin(), here, comes_earlier) == here && advance(*left[i]))
        left.erase(here);
      else
        ++i;
    }
    if (left.size() == before) sched_yield();
  }
  for (const auto& finish : job.finishes) finish();
  return 0;
}

bool is_bad(const Comm* comm, const void* buffer, size_t bytes) {
  if (bytes > most_bytes * most_ranks || comm == nullptr || comm->destroyed || comm->suspended) return true;
  // Where the ranks meet there is no window.
  if (comm->window == nullptr || bytes <= 4) return false;
  const auto* begin = static_cast<const char*>(buffer);
  return begin < comm->window || begin + bytes > comm->window + comm->window_bytes;
}

// One launch on all streams of a group: it comes after what is on any of them.
int launch(Job* job, const std::vector<void*>& streams) {
  void* event;
  cuEventCreate(&event, 0);
  for (void* stream : streams) {
    if (stream == streams[0]) continue;
    if (cuEventRecord(event, stream) != 0 || cuStreamWaitEvent(streams[0], event, 0) != 0) return unhandled_cuda_error;
  }
  fake_launch(streams[0], run, job);
  cuEventRecord(event, streams[0]);
  for (void* stream : streams)
    if (stream != streams[0] && cuStreamWaitEvent(stream, event, 0) != 0) return unhandled_cuda_error;
  return 0;
}

struct Part {
  void* buffer;
  size_t bytes;
  int peer;
};

int submit(Comm* comm, const std::vector<Part>& sends, const std::vector<Part>& receives, void* stream,
           std::function<void()> finish = {}) {
  if (comm->destroyed) return invalid_argument;
  if (comm->revoked || comm->finalized) return invalid_usage;
  Job* job = group_depth > 0 && group_job != nullptr ? group_job : new Job;
  for (const auto* parts : {&sends, &receives})
    for (const Part& part : *parts) {
      if (part.bytes > most_bytes || part.peer < 0 || part.peer >= comm->ranks) return invalid_argument;
      job->transfers.push_back({comm, parts == &sends, part.buffer, part.bytes, part.peer});
    }
  if (finish) job->finishes.push_back(std::move(finish));
  if (!comm->blocking) comm->state = in_progress;
  if (group_depth > 0) {
    group_job = job;
    if (std::find(group_streams.begin(), group_streams.end(), stream) == group_streams.end())
      group_streams.push_back(stream);
    return 0;
  }
  const int failed = launch(job, {stream});
  return failed != 0 ? failed : comm->state;
}

// Ranks that have opened the same memory tell each other so; all of them may be in this group.
void meet(const std::vector<Making>& all) {
  Job job;
  static char nothing = 0;
  for (const Making& one : all) {
    for (int r = 0; r < one.comm->ranks; ++r) {
      job.transfers.push_back({one.comm, true, &nothing, 0, r});
      job.transfers.push_back({one.comm, false, &nothing, 0, r});
    }
  }
  run(&job);
  for (const Making& one : all) {
    if (one.comm->rank == 0) shm_unlink(one.comm->name.c_str());
    if (one.later != nullptr) *one.later = one.comm;
  }
}

int open_comm(Comm** comm, const std::string& name, int ranks, int rank) {
  if (ranks > most_ranks || ranks < 1 || rank < 0 || rank >= ranks) return invalid_argument;
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  const size_t bytes = sizeof(Box) * most_ranks * most_ranks;
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return system_error;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return system_error;
  *comm = new Comm{.rank = rank, .ranks = ranks, .boxes = static_cast<Box(*)[most_ranks]>(memory), .name = name};
  return 0;
}

int meet_in(Comm** made, const std::string& name, int ranks, int rank, bool is_split = false) {
  Comm* comm = nullptr;
  if (const int failed = open_comm(&comm, name, ranks, rank)) return failed;
  const bool later = is_split && group_depth > 0;
  *made = later ? nullptr : comm;
  group_making.push_back({comm, later ? made : nullptr});
  if (group_depth == 0) meet(std::exchange(group_making, {}));
  return 0;
}

}  // namespace
