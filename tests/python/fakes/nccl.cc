// A fake of libnccl.so.2 on the fake driver. Processes exchange messages through shared memory. It checks its arguments
// as strictly as possible.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nccl_reductions.h"
#include "nccl_transfers.h"

namespace {

struct UniqueId {
  char internal[128];
};

// ncclConfig_t of NCCL 2.28, including the fields that callers of older versions do not have.
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

// ncclSimInfo_t of NCCL 2.22.
struct SimulationInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
};

bool is_bad(const Config* config) {
  return config->size != offsetof(Config, nChannelsPerNetPeer) || config->magic != 0xcafebeef ||
         config->version != 22700 || config->netName != nullptr || config->trafficClass != INT_MIN ||
         config->nvlsCTAs != INT_MIN ||
         (config->CTAPolicy != INT_MIN && (config->CTAPolicy < 0 || config->CTAPolicy > 3));
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  const char* named = std::getenv("FAKE_NCCL_VERSION");
  return *version = named != nullptr ? std::atoi(named) : 22809, 0;
}
const char* ncclGetErrorString(int) { return "a fake error"; }
const char* ncclGetLastError(void*) { return "the message of the fake"; }

int ncclGetUniqueId(UniqueId* id) {
  static int created = 0;
  std::memset(id, 0, sizeof *id);
  return std::snprintf(id->internal, sizeof id->internal, "/fake-nccl-%d-%d", getpid(), created++), 0;
}

int ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, const Config* config) {
  if (is_bad(config)) return invalid_argument;
  const char* multicast = std::getenv("NCCL_NVLS_ENABLE");
  if (multicast == nullptr || std::strcmp(multicast, "0") != 0) return invalid_usage;
  if (const int failed = join(comm, id.internal, ranks, rank)) return failed;
  (*comm)->blocking = config->blocking != 0;
  return 0;
}
int ncclCommInitRankScalable(Comm** comm, int ranks, int rank, int id_count, UniqueId* ids, const Config* config) {
  if (id_count < 1 || id_count > ranks || is_bad(config)) return invalid_argument;
  return join(comm, ids[0].internal, ranks, rank);
}
int ncclCommInitRank(Comm** comm, int ranks, UniqueId id, int rank) { return join(comm, id.internal, ranks, rank); }
int ncclCommInitAll(Comm** comms, int ranks, const int* devices) {
  UniqueId id;
  ncclGetUniqueId(&id);
  for (int r = 0; r < ranks; ++r) {
    if (const int failed = open_comm(&comms[r], id.internal, ranks, r)) return failed;
    comms[r]->device = devices != nullptr ? devices[r] : r;
  }
  shm_unlink(id.internal);
  return 0;
}
int ncclCommSplit(Comm* comm, int color, int key, Comm** created, const Config*) {
  struct Request {
    int color, key;
  };
  const Request own{color, key};
  Request requests[max_ranks];
  Job job;
  for (int r = 0; r < comm->ranks; ++r) {
    job.transfers.push_back({comm, true, const_cast<Request*>(&own), sizeof own, r});
    job.transfers.push_back({comm, false, &requests[r], sizeof own, r});
  }
  if (run(&job) != 0) return invalid_usage;
  const std::string name = comm->name + "-" + std::to_string(comm->splits++) + "-" + std::to_string(color);
  *created = nullptr;
  if (color < 0) return 0;
  int rank = 0, ranks = 0;
  for (int r = 0; r < comm->ranks; ++r) {
    if (requests[r].color != color) continue;
    ++ranks;
    if (requests[r].key < key || (requests[r].key == key && r < comm->rank)) ++rank;
  }
  return join(created, name, ranks, rank, true);
}
// Excluded ranks do not call this.
int ncclCommShrink(Comm* comm, int* excluded, int count, Comm** created, const Config* config, int flags) {
  constexpr int abort_first = 1;
  if ((config != nullptr && is_bad(config)) || (flags != 0 && flags != abort_first)) return invalid_argument;
  if (flags == abort_first) comm->aborted.store(true);
  std::string name = comm->name + "-without";
  int rank = comm->rank;
  for (int i = 0; i < count; ++i) {
    if (excluded[i] == comm->rank) return invalid_argument;
    if (excluded[i] < comm->rank) --rank;
    name += "-" + std::to_string(excluded[i]);
  }
  return join(created, name, comm->ranks - count, rank);
}
int ncclCommGetUniqueId(Comm* comm, UniqueId* id) { return comm->destroyed ? invalid_argument : ncclGetUniqueId(id); }
// One of the existing ranks passes the id and sends it to the others.
int ncclCommGrow(Comm* comm, int ranks, const UniqueId* id, int rank, Comm** created, const Config* config) {
  if ((config != nullptr && is_bad(config)) || (comm == nullptr ? id == nullptr || rank < 0 : rank != -1))
    return invalid_argument;
  if (comm == nullptr) return join(created, id->internal, ranks, rank);
  const UniqueId own = id != nullptr ? *id : UniqueId{};
  UniqueId ids[max_ranks] = {};
  Job job;
  for (int r = 0; r < comm->ranks; ++r) {
    job.transfers.push_back({comm, true, const_cast<UniqueId*>(&own), sizeof own, r});
    job.transfers.push_back({comm, false, &ids[r], sizeof own, r});
  }
  if (ranks <= comm->ranks || run(&job) != 0) return invalid_usage;
  const UniqueId* const given = std::ranges::find_if(ids, [](const UniqueId& one) { return one.internal[0] != 0; });
  return given == std::end(ids) ? invalid_argument : join(created, given->internal, ranks, comm->rank);
}
int ncclCommRevoke(Comm* comm, int flags) {
  if (flags != 0) return invalid_argument;
  comm->aborted.store(true);
  return comm->revoked = true, 0;
}
int ncclCommDestroy(Comm* comm) {
  if (comm == nullptr) return 0;
  if (comm->destroyed) return invalid_argument;
  comm->destroyed = true;
  return fake_graphs_alive() != 0 ? invalid_usage : 0;
}
int ncclCommAbort(Comm* comm) {
  if (comm->destroyed) return invalid_argument;
  comm->aborted.store(true);
  return comm->destroyed = true, 0;
}
int ncclCommFinalize(Comm* comm) {
  if (comm->destroyed || comm->finalized) return invalid_argument;
  comm->finalized = true;
  return comm->revoked ? invalid_usage : 0;
}
#ifndef FAKE_NCCL_OLD
// As in NCCL, all ranks must take part: each sends a byte to the others.
static int synchronize_ranks(Comm* comm) {
  char own = 1, others[max_ranks];
  Job job;
  for (int r = 0; r < comm->ranks; ++r) {
    job.transfers.push_back({comm, true, &own, 1, r});
    job.transfers.push_back({comm, false, &others[r], 1, r});
  }
  return run(&job) == 0 ? 0 : invalid_usage;
}
// In a group this takes effect at the end.
static int suspend(Comm* comm, bool suspended) {
  if (comm->destroyed || comm->suspended == suspended) return invalid_argument;
  if (group_depth > 0) return group_suspending.emplace_back(comm, suspended), 0;
  comm->suspended = suspended;
  return synchronize_ranks(comm);
}
int ncclCommSuspend(Comm* comm, int flags) { return flags == 1 ? suspend(comm, true) : invalid_argument; }
int ncclCommResume(Comm* comm) { return suspend(comm, false); }
#endif
int ncclCommGetAsyncError(Comm* comm, int* error) {
  if (comm->destroyed) return invalid_argument;
  *error = comm->state;
  return comm->state = 0, 0;
}
int ncclCommCount(Comm* comm, int* count) { return comm->destroyed ? invalid_argument : (*count = comm->ranks, 0); }
int ncclCommUserRank(Comm* comm, int* rank) { return comm->destroyed ? invalid_argument : (*rank = comm->rank, 0); }
int ncclCommCuDevice(Comm* comm, int* device) { return *device = comm->device, 0; }
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, Comm* comm) {
  if ((type != 2 && type != 7) || residence < 0 || residence > 1) return invalid_argument;
  comm->factors.push_back(type == 2 ? static_cast<float>(*static_cast<int*>(scalar)) : *static_cast<float*>(scalar));
  return *op = first_user_reduction + static_cast<int>(comm->factors.size()) - 1, 0;
}
int ncclRedOpDestroy(int op, Comm* comm) {
  if (op != first_user_reduction + static_cast<int>(comm->factors.size()) - 1) return invalid_argument;
  return comm->factors.pop_back(), 0;
}

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

// The handle is the end of the buffer, so that tests see the arguments.
int ncclCommRegister(Comm* comm, void* buffer, size_t bytes, void** handle) {
  if (comm->destroyed || buffer == nullptr || bytes == 0) return invalid_argument;
  *handle = static_cast<char*>(buffer) + bytes;
  return comm->registered.push_back(*handle), 0;
}
int ncclCommDeregister(Comm* comm, void* handle) {
  return comm->destroyed || std::erase(comm->registered, handle) != 1 ? invalid_argument : 0;
}

int ncclGroupStart() { return ++group_depth, 0; }
int ncclGroupEnd() {
  if (group_depth == 0) return invalid_usage;
  if (--group_depth != 0) return 0;
  complete_creation(std::exchange(group_creations, {}));
  for (const auto& [comm, suspended] : std::exchange(group_suspending, {})) comm->suspended = suspended;
  if (group_job == nullptr) return 0;
  return launch(std::exchange(group_job, nullptr), std::exchange(group_streams, {}));
}
// Runs nothing.
int ncclGroupSimulateEnd(SimulationInfo* info) {
  if (group_depth == 0) return invalid_usage;
  if (info->size != sizeof *info || info->magic != 0x74685283) return invalid_argument;
  if (--group_depth != 0 || group_job == nullptr) return 0;
  const std::unique_ptr<Job> job(std::exchange(group_job, nullptr));
  group_streams.clear();
  info->estimatedTime = static_cast<float>(job->transfers.size());
  return 0;
}

// A send or receive, alone or in a group.
static int transfer(bool is_send, void* buffer, size_t count, int type, int peer, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  if (is_bad(comm, buffer, bytes)) return invalid_argument;
  const std::vector<Part> part = {{buffer, bytes, peer}};
  return is_send ? submit(comm, part, {}, stream) : submit(comm, {}, part, stream);
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
  std::vector<Part> sends;
  for (int r = 0; comm->rank == root && r < comm->ranks; ++r) sends.push_back({at(send, 0), bytes, r});
  return submit(comm, sends, {{recv, bytes, root}}, stream);
}
// Calls the public function, as NCCL does, which the drop-in may intercept.
int ncclBcast(void* buffer, size_t count, int type, int root, Comm* comm, void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
int ncclAllGather(const void* send, void* recv, size_t count, int type, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  if (is_bad(comm, send, bytes) || is_bad(comm, recv, bytes * static_cast<size_t>(comm->ranks)))
    return invalid_argument;
  std::vector<Part> sends, receives;
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
  std::vector<Part> sends, receives;
  for (int r = 0; r < comm->ranks; ++r) {
    sends.push_back({at(send, static_cast<size_t>(r) * bytes), bytes, r});
    receives.push_back({at(recv, static_cast<size_t>(r) * bytes), bytes, r});
  }
  return submit(comm, sends, receives, stream);
}
int ncclGather(const void* send, void* recv, size_t count, int type, int root, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  std::vector<Part> receives;
  for (int r = 0; comm->rank == root && r < comm->ranks; ++r) {
    receives.push_back({at(recv, static_cast<size_t>(r) * bytes), bytes, r});
  }
  return submit(comm, {{at(send, 0), bytes, root}}, receives, stream);
}
int ncclScatter(const void* send, void* recv, size_t count, int type, int root, Comm* comm, void* stream) {
  const size_t bytes = count * static_cast<size_t>(bytes_of(type));
  std::vector<Part> sends;
  for (int r = 0; comm->rank == root && r < comm->ranks; ++r) {
    sends.push_back({at(send, static_cast<size_t>(r) * bytes), bytes, r});
  }
  return submit(comm, sends, {{recv, bytes, root}}, stream);
}
#endif

}  // extern "C"

#ifndef FAKE_NCCL_OLD
#include "nccl_call_config.h"
#endif
