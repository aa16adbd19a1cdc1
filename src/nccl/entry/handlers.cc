// The functions of NCCL that the drop-in handles, with the signatures of nccl.h.
#include "nccl/entry/handlers.h"

#include <algorithm>
#include <exception>
#include <span>

#include "nccl/calls/group.h"
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/libraries/forward.h"
#include "nccl/libraries/real_nccl.h"
#include "nccl/ranks/attach.h"
#include "nccl/ranks/attach_at_creation.h"
#include "nccl/report/last_error.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// No exception passes into the program.
template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    log(Level::warn, "a call failed: %s", error.what());
    return internal_error;
  }
}

int submitted(const Call& call) {
  return guarded([&] { return submit(call); });
}

// Calls.

int send(const void* send, size_t count, int dtype, int peer, Comm comm, CudaStream stream) {
  return submitted({.function = Function::Send,
                    .operation = NCAST_OP_SEND,
                    .send = send,
                    .count = count,
                    .dtype = dtype,
                    .peer = peer,
                    .comm = comm,
                    .stream = stream});
}

int recv(void* recv, size_t count, int dtype, int peer, Comm comm, CudaStream stream) {
  return submitted({.function = Function::Recv,
                    .operation = NCAST_OP_RECV,
                    .recv = recv,
                    .count = count,
                    .dtype = dtype,
                    .peer = peer,
                    .comm = comm,
                    .stream = stream});
}

int bcast(void* buffer, size_t count, int dtype, int root, Comm comm, CudaStream stream) {
  return submitted({.function = Function::Bcast,
                    .operation = NCAST_OP_BROADCAST,
                    .send = buffer,
                    .recv = buffer,
                    .count = count,
                    .dtype = dtype,
                    .peer = root,
                    .comm = comm,
                    .stream = stream});
}

template <Function function, Operation operation>
int move_with(const void* send, void* recv, size_t count, int dtype, Comm comm, CudaStream stream, const void* config) {
  return submitted({.function = function,
                    .operation = operation,
                    .send = send,
                    .recv = recv,
                    .count = count,
                    .dtype = dtype,
                    .comm = comm,
                    .stream = stream,
                    .config = config});
}
template <Function function, Operation operation>
int move(const void* send, void* recv, size_t count, int dtype, Comm comm, CudaStream stream) {
  return move_with<function, operation>(send, recv, count, dtype, comm, stream, nullptr);
}

template <Function function, Operation operation>
int rooted_with(const void* send, void* recv, size_t count, int dtype, int root, Comm comm, CudaStream stream,
                const void* config) {
  return submitted({.function = function,
                    .operation = operation,
                    .send = send,
                    .recv = recv,
                    .count = count,
                    .dtype = dtype,
                    .peer = root,
                    .comm = comm,
                    .stream = stream,
                    .config = config});
}
template <Function function, Operation operation>
int rooted(const void* send, void* recv, size_t count, int dtype, int root, Comm comm, CudaStream stream) {
  return rooted_with<function, operation>(send, recv, count, dtype, root, comm, stream, nullptr);
}

template <Function function, Operation operation>
int reduction_with(const void* send, void* recv, size_t count, int dtype, int redop, Comm comm, CudaStream stream,
                   const void* config) {
  return submitted({.function = function,
                    .operation = operation,
                    .send = send,
                    .recv = recv,
                    .count = count,
                    .dtype = dtype,
                    .redop = redop,
                    .comm = comm,
                    .stream = stream,
                    .config = config});
}
template <Function function, Operation operation>
int reduction(const void* send, void* recv, size_t count, int dtype, int redop, Comm comm, CudaStream stream) {
  return reduction_with<function, operation>(send, recv, count, dtype, redop, comm, stream, nullptr);
}

int reduce_with(const void* send, void* recv, size_t count, int dtype, int redop, int root, Comm comm,
                CudaStream stream, const void* config) {
  return submitted({.function = config == nullptr ? Function::Reduce : Function::ReduceConfig,
                    .operation = NCAST_OP_REDUCE,
                    .send = send,
                    .recv = recv,
                    .count = count,
                    .dtype = dtype,
                    .redop = redop,
                    .peer = root,
                    .comm = comm,
                    .stream = stream,
                    .config = config});
}
int reduce(const void* send, void* recv, size_t count, int dtype, int redop, int root, Comm comm, CudaStream stream) {
  return reduce_with(send, recv, count, dtype, redop, root, comm, stream, nullptr);
}

// Groups.

int group_start() {
  return guarded([] { return start_group(); });
}
int group_end() {
  return guarded([] { return end_group(); });
}
int group_simulate_end(void* info) {
  return guarded([&] { return end_group_by(real<int(void*)>(Function::GroupSimulateEnd), info); });
}

// Communicators.

int on_real(Function function, Comm comm) {
  const InsideNccl inside;
  return real<int(Comm)>(function)(comm);
}

int comm_destroy(Comm handle) {
  return guarded([&] {
    if (!InsideNccl::active())
      if (const auto comm = take_communicator(handle)) detach(*comm);
    return on_real(Function::CommDestroy, handle);
  });
}

// NCCL's own kernels are ended by NCCL; the engine's are told to end first.
int comm_abort(Comm handle) {
  return guarded([&] {
    const auto comm = InsideNccl::active() ? nullptr : take_communicator(handle);
    if (comm != nullptr) comm->abort();
    const int result = on_real(Function::CommAbort, handle);
    if (comm != nullptr) detach(*comm);
    return result;
  });
}

int comm_finalize(Comm handle) {
  return guarded([&] {
    const auto comm = InsideNccl::active() ? nullptr : known_communicator(handle);
    if (comm != nullptr && comm->attached()) {
      comm->forward_all("the communicator was finalized");
      const OnDevice on_device(comm->device);
      comm->order.synchronize();
    }
    return on_real(Function::CommFinalize, handle);
  });
}

int comm_revoke(Comm handle, int flags) {
  return guarded([&] {
    if (!InsideNccl::active())
      if (const auto comm = known_communicator(handle)) comm->abort();
    const InsideNccl inside;
    return real<int(Comm, int)>(Function::CommRevoke)(handle, flags);
  });
}

// `make` makes communicators at `made`, all ranks of which are in such a call; meeting: that of the only one, or NULL.
template <typename Make>
int make_communicators(Comm parent, const Config* config, std::span<Comm> made, Make&& make,
                       std::unique_ptr<Meeting> meeting = nullptr) {
  return guarded([&] {
    int result = success;
    {
      const InsideNccl inside;
      result = make();
    }
    if (result != success || InsideNccl::active()) return result;
    // In a group one that was split is made later, without its name.
    for (const Comm handle : made) keep_name(handle, config);
    if (meeting != nullptr) keep_meeting(made[0], std::move(meeting));
    if (attaches_at_creation(parent, config)) attach_when_made(made);
    return result;
  });
}

// With an id, which leads the ranks of two to each other.
template <typename Make>
int make_by_id(int ranks, const UniqueId* id, int rank, const Config* config, Comm* made, Make&& make) {
  return guarded([&] {
    auto meeting = id == nullptr || InsideNccl::active() ? nullptr : meeting_for(ranks, *id, rank, config);
    return make_communicators(nullptr, config, {made, 1}, make, std::move(meeting));
  });
}

int comm_init_rank(Comm* made, int ranks, UniqueId id, int rank) {
  return make_by_id(ranks, &id, rank, nullptr, made, [&] {
    return real<int(Comm*, int, UniqueId, int)>(Function::CommInitRank)(made, ranks, id, rank);
  });
}

int comm_init_all(Comm* made, int count, const int* devices) {
  return make_communicators(nullptr, nullptr, {made, static_cast<size_t>(std::max(count, 0))}, [&] {
    return real<int(Comm*, int, const int*)>(Function::CommInitAll)(made, count, devices);
  });
}

int comm_init_rank_config(Comm* made, int ranks, UniqueId id, int rank, Config* config) {
  return make_by_id(ranks, &id, rank, config, made, [&] {
    return real<int(Comm*, int, UniqueId, int, Config*)>(Function::CommInitRankConfig)(made, ranks, id, rank, config);
  });
}

int comm_init_rank_scalable(Comm* made, int ranks, int rank, int id_count, UniqueId* ids, Config* config) {
  return make_by_id(ranks, ids, rank, config, made, [&] {
    return real<int(Comm*, int, int, int, UniqueId*, Config*)>(Function::CommInitRankScalable)(made, ranks, rank,
                                                                                               id_count, ids, config);
  });
}

int comm_split(Comm handle, int color, int key, Comm* made, Config* config) {
  return make_communicators(handle, config, {made, 1}, [&] {
    return real<int(Comm, int, int, Comm*, Config*)>(Function::CommSplit)(handle, color, key, made, config);
  });
}

int comm_shrink(Comm handle, int* excluded, int count, Comm* made, Config* config, int flags) {
  constexpr int abort_first = 1;  // NCCL_SHRINK_ABORT
  return make_communicators(handle, config, {made, 1}, [&] {
    if ((flags & abort_first) != 0)
      if (const auto comm = known_communicator(handle)) comm->abort();
    return real<int(Comm, int*, int, Comm*, Config*, int)>(Function::CommShrink)(handle, excluded, count, made, config,
                                                                                 flags);
  });
}

// New ranks have no handle; of the others one gives the id. Without a configuration the new ranks do not know whether the
// communicator of the others blocks.
int comm_grow(Comm handle, int ranks, const UniqueId* id, int rank, Comm* made, Config* config) {
  return make_communicators(handle, config, {made, config == nullptr ? 0U : 1U}, [&] {
    return real<int(Comm, int, const UniqueId*, int, Comm*, Config*)>(Function::CommGrow)(handle, ranks, id, rank, made,
                                                                                          config);
  });
}

int comm_get_async_error(Comm handle, int* error) {
  return guarded([&] {
    const InsideNccl inside;
    const int result = real<int(Comm, int*)>(Function::CommGetAsyncError)(handle, error);
    if (result != success || error == nullptr || *error != success) return result;
    const auto comm = known_communicator(handle);
    if (comm != nullptr && comm->broken.load()) *error = unhandled_cuda_error;
    ncast_comm* const engine_comm = comm == nullptr || comm->aborted.load() ? nullptr : comm->engine_comm.load();
    if (engine_comm == nullptr) return result;
    const ncast_status status = engine()->ncast_comm_async_error(engine_comm, nullptr, 0);
    // INVALID_ARGUMENT: another thread has begun to destroy it.
    if (status != NCAST_OK && status != NCAST_INVALID_ARGUMENT)
      *error = report_engine_error(status, "the communicator");
    return result;
  });
}

int comm_window_register(Comm handle, void* buffer, size_t bytes, void** window, int flags) {
  return guarded([&] {
    if (const auto comm = find_communicator(handle)) comm->has_windows.store(true);
    const InsideNccl inside;
    return real<int(Comm, void*, size_t, void**, int)>(Function::CommWindowRegister)(handle, buffer, bytes, window,
                                                                                     flags);
  });
}

const char* get_last_error(Comm comm) {
  if (const char* const sentence = last_error()) return sentence;
  return real<const char*(Comm)>(Function::GetLastError)(comm);
}

}  // namespace

void* handler(Function function) {
#define HANDLE(name, ...) \
  case Function::name: return reinterpret_cast<void*>(&__VA_ARGS__)
  switch (function) {
    HANDLE(Send, send);
    HANDLE(Recv, recv);
    HANDLE(Bcast, bcast);
    HANDLE(AllGather, move<Function::AllGather, NCAST_OP_ALL_GATHER>);
    HANDLE(AllGatherConfig, move_with<Function::AllGatherConfig, NCAST_OP_ALL_GATHER>);
    HANDLE(AlltoAll, move<Function::AlltoAll, NCAST_OP_ALL_TO_ALL>);
    HANDLE(AlltoAllConfig, move_with<Function::AlltoAllConfig, NCAST_OP_ALL_TO_ALL>);
    HANDLE(Broadcast, rooted<Function::Broadcast, NCAST_OP_BROADCAST>);
    HANDLE(BroadcastConfig, rooted_with<Function::BroadcastConfig, NCAST_OP_BROADCAST>);
    HANDLE(Gather, rooted<Function::Gather, NCAST_OP_GATHER>);
    HANDLE(GatherConfig, rooted_with<Function::GatherConfig, NCAST_OP_GATHER>);
    HANDLE(Scatter, rooted<Function::Scatter, NCAST_OP_SCATTER>);
    HANDLE(ScatterConfig, rooted_with<Function::ScatterConfig, NCAST_OP_SCATTER>);
    HANDLE(AllReduce, reduction<Function::AllReduce, NCAST_OP_ALL_REDUCE>);
    HANDLE(AllReduceConfig, reduction_with<Function::AllReduceConfig, NCAST_OP_ALL_REDUCE>);
    HANDLE(ReduceScatter, reduction<Function::ReduceScatter, NCAST_OP_REDUCE_SCATTER>);
    HANDLE(ReduceScatterConfig, reduction_with<Function::ReduceScatterConfig, NCAST_OP_REDUCE_SCATTER>);
    HANDLE(Reduce, reduce);
    HANDLE(ReduceConfig, reduce_with);
    HANDLE(GroupStart, group_start);
    HANDLE(GroupEnd, group_end);
    HANDLE(GroupSimulateEnd, group_simulate_end);
    HANDLE(CommDestroy, comm_destroy);
    HANDLE(CommAbort, comm_abort);
    HANDLE(CommFinalize, comm_finalize);
    HANDLE(CommRevoke, comm_revoke);
    HANDLE(CommShrink, comm_shrink);
    HANDLE(CommInitRank, comm_init_rank);
    HANDLE(CommInitAll, comm_init_all);
    HANDLE(CommInitRankConfig, comm_init_rank_config);
    HANDLE(CommInitRankScalable, comm_init_rank_scalable);
    HANDLE(CommSplit, comm_split);
    HANDLE(CommGrow, comm_grow);
    HANDLE(CommGetAsyncError, comm_get_async_error);
    HANDLE(CommWindowRegister, comm_window_register);
    HANDLE(GetLastError, get_last_error);
    default: return nullptr;
  }
#undef HANDLE
}

}  // namespace narrowcast::nccl
