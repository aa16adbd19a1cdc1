// Stands for libnccl.so.2 on the fake of the driver: processes pass messages through shared memory. It is as strict as
// it can be about what it is given, and reduces as NCCL may: value after value, each sum rounded.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

extern "C" int fake_launch(void* stream, int (*function)(void*), void* argument);
extern "C" int fake_graphs_alive();

namespace {

constexpr int most_ranks = 4;
constexpr size_t most_bytes = 1 << 20;
constexpr int invalid_argument = 4, invalid_usage = 5;

struct UniqueId {
  char internal[128];
};

// As nccl.h of 2.28 has it, the last fields too.
struct Config {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
};

struct Box {
  std::atomic<uint32_t> full;
  char data[most_bytes];
};

struct Comm {
  int rank, ranks;
  Box (*boxes)[most_ranks];
  const char* window = nullptr;
  size_t window_bytes = 0;
};

struct Transfer {
  void* buffer;
  size_t bytes;
  int peer;
};

// What one launch does: sends, then receives, then works on what came.
struct Job {
  Comm* comm;
  std::vector<Transfer> sends, receives;
  std::function<void()> finish;
};

int group_depth = 0;
Job* group_job = nullptr;
void* group_stream = nullptr;

int bytes_of(int type) {
  constexpr int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

int run(void* argument) {
  // Graphs run it again.
  const Job& job = *static_cast<Job*>(argument);
  for (const Transfer& send : job.sends) {
    Box& box = job.comm->boxes[job.comm->rank][send.peer];
    while (box.full.load() != 0) sched_yield();
    std::memcpy(box.data, send.buffer, send.bytes);
    box.full.store(1);
  }
  for (const Transfer& receive : job.receives) {
    Box& box = job.comm->boxes[receive.peer][job.comm->rank];
    while (box.full.load() == 0) sched_yield();
    std::memcpy(receive.buffer, box.data, receive.bytes);
    box.full.store(0);
  }
  if (job.finish) job.finish();
  return 0;
}

bool is_bad(const Comm* comm, const void* buffer, size_t bytes) {
  if (bytes > most_bytes * most_ranks) return true;
  // Where the ranks meet there is no window.
  if (comm->window == nullptr || bytes <= 4) return false;
  const auto* begin = static_cast<const char*>(buffer);
  return begin < comm->window || begin + bytes > comm->window + comm->window_bytes;
}

int submit(Comm* comm, std::vector<Transfer> sends, std::vector<Transfer> receives, void* stream,
           std::function<void()> finish = {}) {
  return fake_launch(stream, run, new Job{comm, std::move(sends), std::move(receives), std::move(finish)});
}

char* at(const void* buffer, size_t offset) { return static_cast<char*>(const_cast<void*>(buffer)) + offset; }

float widen(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

uint16_t narrow(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(word >> 16 | 0x40);
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

// parts[r] += over the ranks from the last one on, where Narrowcast begins with the first.
int reduce(Comm* comm, const void* send, void* recv, size_t count, int type, int op, bool scatter, bool has_result,
           void* stream, int root) {
  if (op != 0 || (type != 9 && type != 2)) return invalid_argument;
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  std::vector<Transfer> sends, receives;
  auto* gathered = new char[bytes * static_cast<size_t>(comm->ranks)];
  for (int r = 0; r < comm->ranks; ++r) {
    if (root < 0 || r == root) sends.push_back({at(send, scatter ? static_cast<size_t>(r) * bytes : 0), bytes, r});
    if (has_result) receives.push_back({gathered + static_cast<size_t>(r) * bytes, bytes, r});
  }
  auto finish = [=, ranks = comm->ranks] {
    for (size_t i = 0; has_result && i < count; ++i) {
      if (type == 2) {
        int32_t total = 0;
        for (int r = 0; r < ranks; ++r)
          total += reinterpret_cast<int32_t*>(gathered)[static_cast<size_t>(r) * count + i];
        static_cast<int32_t*>(recv)[i] = total;
        continue;
      }
      const auto* values = reinterpret_cast<uint16_t*>(gathered);
      uint16_t total = values[static_cast<size_t>(ranks - 1) * count + i];
      for (int r = ranks - 2; r >= 0; --r)
        total = narrow(widen(total) + widen(values[static_cast<size_t>(r) * count + i]));
      static_cast<uint16_t*>(recv)[i] = total;
    }
    if (std::getenv("FAKE_NCCL_WRONG") != nullptr && has_result && count > 4) {
      static_cast<uint16_t*>(recv)[3] ^= 0x4000;
    }
  };
  return submit(comm, sends, receives, stream, finish);
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  const char* named = std::getenv("FAKE_NCCL_VERSION");
  return *version = named != nullptr ? std::atoi(named) : 22809, 0;
}
const char* ncclGetErrorString(int) { return "a fake error"; }
const char* ncclGetLastError(void*) { return "of the fake"; }

int ncclGetUniqueId(UniqueId* id) {
  static int made = 0;
  std::memset(id, 0, sizeof *id);
  return std::snprintf(id->internal, sizeof id->internal, "/fake-nccl-%d-%d", getpid(), made++), 0;
}

int ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, const Config* config) {
  if (config->size != offsetof(Config, nChannelsPerNetPeer) || config->magic != 0xcafebeef ||
      config->version != 22700 || config->blocking != INT_MIN || config->maxCTAs != INT_MIN ||
      config->netName != nullptr || config->commName != nullptr || config->trafficClass != INT_MIN ||
      config->nvlsCTAs != INT_MIN || (config->CTAPolicy != INT_MIN && config->CTAPolicy != 2) || ranks > most_ranks) {
    return invalid_argument;
  }
  const char* multicast = std::getenv("NCCL_NVLS_ENABLE");
  if (multicast == nullptr || std::strcmp(multicast, "0") != 0) return invalid_usage;
  const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
  const size_t bytes = sizeof(Box) * most_ranks * most_ranks;
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return 2;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return 2;
  *comm = new Comm{rank, ranks, static_cast<Box(*)[most_ranks]>(memory)};
  // Everyone has opened it once everyone has written to everyone.
  std::vector<Transfer> sends, receives;
  char nothing = 0;
  for (int r = 0; r < ranks; ++r) sends.push_back({&nothing, 0, r}), receives.push_back({&nothing, 0, r});
  Job job{*comm, sends, receives, {}};
  run(&job);
  if (rank == 0) shm_unlink(id.internal);
  return 0;
}
int ncclCommDestroy(Comm*) { return fake_graphs_alive() != 0 ? invalid_usage : 0; }

int ncclMemAlloc(void** pointer, size_t bytes) {
  return *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), 0;
}
int ncclMemFree(void* pointer) { return std::free(pointer), 0; }
int ncclCommWindowRegister(Comm* comm, void* buffer, size_t bytes, void** window, int flags) {
  if (flags != 1 || reinterpret_cast<uintptr_t>(buffer) % 4096 != 0) return invalid_argument;
  if (std::getenv("FAKE_NCCL_NO_WINDOWS") != nullptr) return 0;
  comm->window = static_cast<char*>(buffer);
  comm->window_bytes = bytes;
  return *window = comm, 0;
}
int ncclCommWindowDeregister(Comm* comm, void* window) {
  if (window != comm) return invalid_argument;
  return comm->window = nullptr, 0;
}

int ncclGroupStart() { return ++group_depth, 0; }
int ncclGroupEnd() {
  if (--group_depth != 0 || group_job == nullptr) return 0;
  Job* job = group_job;
  group_job = nullptr;
  return fake_launch(group_stream, run, job);
}

static int transfer(bool is_send, void* buffer, size_t count, int type, int peer, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  if (is_bad(comm, buffer, bytes) || group_depth == 0) return invalid_argument;
  if (group_job == nullptr) group_job = new Job{comm, {}, {}, {}};
  group_stream = stream;
  (is_send ? group_job->sends : group_job->receives).push_back({buffer, bytes, peer});
  return 0;
}
int ncclSend(const void* buffer, size_t count, int type, int peer, Comm* comm, void* stream) {
  return transfer(true, at(buffer, 0), count, type, peer, comm, stream);
}
int ncclRecv(void* buffer, size_t count, int type, int peer, Comm* comm, void* stream) {
  return transfer(false, buffer, count, type, peer, comm, stream);
}

int ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  if (is_bad(comm, send, bytes) || is_bad(comm, recv, bytes)) return invalid_argument;
  std::vector<Transfer> sends;
  for (int r = 0; comm->rank == root && r < comm->ranks; ++r) sends.push_back({at(send, 0), bytes, r});
  return submit(comm, sends, {{recv, bytes, root}}, stream);
}
int ncclAllGather(const void* send, void* recv, size_t count, int type, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  if (is_bad(comm, send, bytes) || is_bad(comm, recv, bytes * static_cast<size_t>(comm->ranks)))
    return invalid_argument;
  std::vector<Transfer> sends, receives;
  for (int r = 0; r < comm->ranks; ++r) {
    sends.push_back({at(send, 0), bytes, r});
    receives.push_back({at(recv, static_cast<size_t>(r) * bytes), bytes, r});
  }
  return submit(comm, sends, receives, stream);
}
int ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  if (is_bad(comm, send, bytes) || is_bad(comm, recv, bytes)) return invalid_argument;
  return reduce(comm, send, recv, count, type, op, false, true, stream, -1);
}
int ncclReduce(const void* send, void* recv, size_t count, int type, int op, int root, Comm* comm, void* stream) {
  return reduce(comm, send, recv, count, type, op, false, comm->rank == root, stream, root);
}
int ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, Comm* comm, void* stream) {
  return reduce(comm, send, recv, count, type, op, true, true, stream, -1);
}

#ifndef FAKE_NCCL_OLD
int ncclAlltoAll(const void* send, void* recv, size_t count, int type, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  std::vector<Transfer> sends, receives;
  for (int r = 0; r < comm->ranks; ++r) {
    sends.push_back({at(send, static_cast<size_t>(r) * bytes), bytes, r});
    receives.push_back({at(recv, static_cast<size_t>(r) * bytes), bytes, r});
  }
  return submit(comm, sends, receives, stream);
}
int ncclGather(const void* send, void* recv, size_t count, int type, int root, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  std::vector<Transfer> receives;
  for (int r = 0; comm->rank == root && r < comm->ranks; ++r) {
    receives.push_back({at(recv, static_cast<size_t>(r) * bytes), bytes, r});
  }
  return submit(comm, {{at(send, 0), bytes, root}}, receives, stream);
}
int ncclScatter(const void* send, void* recv, size_t count, int type, int root, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  std::vector<Transfer> sends;
  for (int r = 0; comm->rank == root && r < comm->ranks; ++r) {
    sends.push_back({at(send, static_cast<size_t>(r) * bytes), bytes, r});
  }
  return submit(comm, sends, {{recv, bytes, root}}, stream);
}
#endif

}  // extern "C"
