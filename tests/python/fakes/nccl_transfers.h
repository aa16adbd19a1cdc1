// Transfers of the fake NCCL: communicators over shared memory, launches of sends and receives, groups.
#pragma once

#include <fcntl.h>
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

constexpr int max_ranks = 18;
constexpr size_t max_bytes = 8 << 20;
constexpr int unhandled_cuda_error = 1, system_error = 2, invalid_argument = 4, invalid_usage = 5, in_progress = 7;
constexpr int first_user_reduction = 5;
constexpr int launch_failed = 719;  // CUDA_ERROR_LAUNCH_FAILED

struct Box {
  std::atomic<uint32_t> full;
  char data[max_bytes];
};

struct Comm {
  int rank, ranks;
  Box (*boxes)[max_ranks];
  std::string name;
  int device = 0;
  bool blocking = true;
  int state = 0;  // of a nonblocking communicator
  int splits = 0;
  std::atomic<bool> aborted{false};
  bool revoked = false, finalized = false, suspended = false;  // calls are rejected
  bool destroyed = false;
  std::vector<float> factors = {};  // of user-defined reductions
  const char* window = nullptr;
  size_t window_bytes = 0;
  std::vector<void*> registered = {};  // the ends of registered buffers
};

struct Transfer {
  Comm* comm;
  bool is_send;
  void* buffer;
  size_t bytes;
  int peer;
};

// The work of one launch: sends and receives, as soon as each is possible, then the functions on the received data.
struct Job {
  std::vector<Transfer> transfers;
  std::vector<std::function<void()>> finishes;
};

thread_local int group_depth = 0;
thread_local Job* group_job = nullptr;
thread_local std::vector<void*> group_streams;

// A communicator whose creation completes at the end of a group. A split writes its handle only then, to `later`.
struct Creation {
  Comm* comm;
  Comm** later;
};
thread_local std::vector<Creation> group_creations;
thread_local std::vector<std::pair<Comm*, bool>> group_suspending;

int bytes_of(int type) {
  constexpr int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

// Transfers with the same communicator, direction and peer run in order.
bool same_queue(const Transfer& a, const Transfer& b) {
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
  // The job is not modified, because graphs run it repeatedly.
  const Job& job = *static_cast<Job*>(argument);
  std::vector<const Transfer*> left;
  for (const Transfer& transfer : job.transfers) left.push_back(&transfer);
  while (!left.empty()) {
    const size_t before = left.size();
    for (size_t i = 0; i < left.size();) {
      if (left[i]->comm->aborted.load()) return launch_failed;
      const auto precedes = [&](const Transfer* other) { return same_queue(*other, *left[i]); };
      const auto here = left.begin() + static_cast<ptrdiff_t>(i);
      if (std::find_if(left.begin(), here, precedes) == here && advance(*left[i]))
        left.erase(here);
      else
        ++i;
    }
    if (left.size() == before) usleep(20);  // other tests need the cores
  }
  for (const auto& finish : job.finishes) finish();
  return 0;
}

bool is_bad(const Comm* comm, const void* buffer, size_t bytes) {
  if (bytes > max_bytes * max_ranks || comm == nullptr || comm->destroyed || comm->suspended) return true;
  // Small internal exchanges are not in the window.
  if (comm->window == nullptr || bytes <= 4) return false;
  const auto* begin = static_cast<const char*>(buffer);
  return begin < comm->window || begin + bytes > comm->window + comm->window_bytes;
}

// One launch for all streams of a group, ordered after the previous work on all of them.
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
      if (part.bytes > max_bytes || part.peer < 0 || part.peer >= comm->ranks) return invalid_argument;
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

// Waits until all ranks have opened the shared memory, several of which may belong to this group.
void complete_creation(const std::vector<Creation>& all) {
  Job job;
  static char nothing = 0;
  for (const Creation& one : all) {
    for (int r = 0; r < one.comm->ranks; ++r) {
      job.transfers.push_back({one.comm, true, &nothing, 0, r});
      job.transfers.push_back({one.comm, false, &nothing, 0, r});
    }
  }
  run(&job);
  for (const Creation& one : all) {
    if (one.comm->rank == 0) shm_unlink(one.comm->name.c_str());
    if (one.later != nullptr) *one.later = one.comm;
  }
}

int open_comm(Comm** comm, const std::string& name, int ranks, int rank) {
  if (ranks > max_ranks || ranks < 1 || rank < 0 || rank >= ranks) return invalid_argument;
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  const size_t bytes = sizeof(Box) * max_ranks * max_ranks;
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return system_error;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return system_error;
  *comm = new Comm{.rank = rank, .ranks = ranks, .boxes = static_cast<Box(*)[max_ranks]>(memory), .name = name};
  return 0;
}

int join(Comm** created, const std::string& name, int ranks, int rank, bool is_split = false) {
  Comm* comm = nullptr;
  if (const int failed = open_comm(&comm, name, ranks, rank)) return failed;
  const bool later = is_split && group_depth > 0;
  *created = later ? nullptr : comm;
  group_creations.push_back({comm, later ? created : nullptr});
  if (group_depth == 0) complete_creation(std::exchange(group_creations, {}));
  return 0;
}

}  // namespace
