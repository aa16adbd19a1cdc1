// Creation, state and end of communicators, with the signatures of nccl.h.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "nccl/calls/group.h"
#include "nccl/calls/user_reductions.h"
#include "nccl/entry/guarded.h"
#include "nccl/entry/handlers.h"
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/libraries/forward.h"
#include "nccl/libraries/real_nccl.h"
#include "nccl/ranks/attach.h"
#include "nccl/ranks/attach_at_creation.h"
#include "nccl/report/last_error.h"

namespace narrowcast::nccl {
namespace {

int call_real(Function function, Comm comm) {
  const InsideNccl inside;
  return real<int(Comm)>(function)(comm);
}

int create_premul_sum(int* redop, void* factor, int dtype, int residence, Comm comm) {
  constexpr int in_gpu_memory = 0;  // ncclScalarDevice
  return guarded([&] {
    const InsideNccl inside;
    const int result =
        real<int(int*, void*, int, int, Comm)>(Function::RedOpCreatePreMulSum)(redop, factor, dtype, residence, comm);
    if (result == success) remember_factor(comm, *redop, factor, dtype, residence == in_gpu_memory);
    return result;
  });
}

int destroy_redop(int redop, Comm comm) {
  return guarded([&] { return destroy_reduction(redop, comm); });
}

int comm_destroy(Comm handle) {
  return guarded([&] {
    forget_factors(handle);
    if (!InsideNccl::active())
      if (const auto comm = remove_communicator(handle)) detach(*comm);
    return call_real(Function::CommDestroy, handle);
  });
}

// Ends the engine's kernels first; NCCL then ends its own.
int comm_abort(Comm handle) {
  return guarded([&] {
    forget_factors(handle);
    const auto comm = InsideNccl::active() ? nullptr : remove_communicator(handle);
    if (comm != nullptr) comm->abort();
    const int result = call_real(Function::CommAbort, handle);
    if (comm != nullptr) detach(*comm);
    return result;
  });
}

int comm_finalize(Comm handle) {
  return guarded([&] {
    const auto comm = InsideNccl::active() ? nullptr : known_communicator(handle);
    if (comm != nullptr && comm->attached()) {
      comm->forward_all("the communicator was finalized");
      const DeviceGuard guard(comm->device);
      comm->order.synchronize();
    }
    return call_real(Function::CommFinalize, handle);
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

// create(): calls NCCL's function, which creates communicators at `created`. Their other ranks make the same call.
// handshake: for a single communicator; may be NULL.
template <typename Create>
int create_communicators(Comm parent, const Config* config, std::span<Comm> created, Create&& create,
                         std::unique_ptr<PairHandshake> handshake = nullptr) {
  return guarded([&] {
    CommunicatorConfig inherited;
    if (parent != nullptr) inherited = config_of(parent);
    int result = success;
    {
      const InsideNccl inside;
      result = create();
    }
    if (result != success || InsideNccl::active()) return result;
    if (handshake != nullptr) remember_handshake(created[0], std::move(handshake));
    communicators_created(created, read_config(config, parent != nullptr ? &inherited : nullptr),
                          attaches_at_creation(parent, config));
    return result;
  });
}

// With an id, two ranks can also prepare a handshake.
template <typename Create>
int create_by_id(int ranks, const UniqueId* id, int rank, const Config* config, Comm* created, Create&& create) {
  return guarded([&] {
    auto handshake = id == nullptr || InsideNccl::active() ? nullptr : handshake_for(ranks, *id, rank, config);
    return create_communicators(nullptr, config, {created, 1}, create, std::move(handshake));
  });
}

int comm_init_rank(Comm* created, int ranks, UniqueId id, int rank) {
  return create_by_id(ranks, &id, rank, nullptr, created, [&] {
    return real<int(Comm*, int, UniqueId, int)>(Function::CommInitRank)(created, ranks, id, rank);
  });
}

int comm_init_all(Comm* created, int count, const int* devices) {
  return create_communicators(nullptr, nullptr, {created, static_cast<size_t>(std::max(count, 0))}, [&] {
    return real<int(Comm*, int, const int*)>(Function::CommInitAll)(created, count, devices);
  });
}

int comm_init_rank_config(Comm* created, int ranks, UniqueId id, int rank, Config* config) {
  return create_by_id(ranks, &id, rank, config, created, [&] {
    return real<int(Comm*, int, UniqueId, int, Config*)>(Function::CommInitRankConfig)(created, ranks, id, rank,
                                                                                       config);
  });
}

int comm_init_rank_scalable(Comm* created, int ranks, int rank, int id_count, UniqueId* ids, Config* config) {
  return create_by_id(ranks, ids, rank, config, created, [&] {
    return real<int(Comm*, int, int, int, UniqueId*, Config*)>(Function::CommInitRankScalable)(created, ranks, rank,
                                                                                               id_count, ids, config);
  });
}

int comm_split(Comm handle, int color, int key, Comm* created, Config* config) {
  return create_communicators(handle, config, {created, 1}, [&] {
    return real<int(Comm, int, int, Comm*, Config*)>(Function::CommSplit)(handle, color, key, created, config);
  });
}

int comm_shrink(Comm handle, int* excluded, int count, Comm* created, Config* config, int flags) {
  constexpr int abort_first = 1;  // NCCL_SHRINK_ABORT
  return create_communicators(handle, config, {created, 1}, [&] {
    if ((flags & abort_first) != 0)
      if (const auto comm = known_communicator(handle)) comm->abort();
    return real<int(Comm, int*, int, Comm*, Config*, int)>(Function::CommShrink)(handle, excluded, count, created,
                                                                                 config, flags);
  });
}

// New ranks pass no handle. Without a configuration they do not know whether the existing communicator blocks, so no
// rank attaches, and no configuration is stored.
int comm_grow(Comm handle, int ranks, const UniqueId* id, int rank, Comm* created, Config* config) {
  return create_communicators(handle, config, {created, config == nullptr ? 0U : 1U}, [&] {
    return real<int(Comm, int, const UniqueId*, int, Comm*, Config*)>(Function::CommGrow)(handle, ranks, id, rank,
                                                                                          created, config);
  });
}

int comm_suspend(Comm handle, int flags) {
  return guarded([&] {
    if (!InsideNccl::active() && (flags & suspend_memory) != 0)
      if (const auto comm = known_communicator(handle)) suspend_in_group(comm);
    const InsideNccl inside;
    return real<int(Comm, int)>(Function::CommSuspend)(handle, flags);
  });
}

int comm_resume(Comm handle) {
  return guarded([&] {
    const int result = call_real(Function::CommResume, handle);
    if (result == success && !InsideNccl::active())
      if (const auto comm = known_communicator(handle)) resume_in_group(comm);
    return result;
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
    const ncast_status status = engine()->ncast_comm_call_error(engine_comm, nullptr, 0);
    // INVALID_ARGUMENT: another thread is destroying it.
    if (status != NCAST_OK && status != NCAST_INVALID_ARGUMENT)
      *error = report_engine_error(status, "the communicator");
    return result;
  });
}

int comm_window_register(Comm handle, void* buffer, size_t bytes, void** window, int flags) {
  return guarded([&] {
    if (const auto comm = find_or_add_communicator(handle)) comm->has_windows.store(true);
    const InsideNccl inside;
    return real<int(Comm, void*, size_t, void**, int)>(Function::CommWindowRegister)(handle, buffer, bytes, window,
                                                                                     flags);
  });
}

const char* get_last_error(Comm comm) {
  if (const char* const message = last_error()) return message;
  return real<const char*(Comm)>(Function::GetLastError)(comm);
}

}  // namespace

void* communicator_handler(Function function) {
#define HANDLE(name, handler) \
  case Function::name: return reinterpret_cast<void*>(&(handler))
  switch (function) {
    HANDLE(RedOpCreatePreMulSum, create_premul_sum);
    HANDLE(RedOpDestroy, destroy_redop);
    HANDLE(CommDestroy, comm_destroy);
    HANDLE(CommAbort, comm_abort);
    HANDLE(CommFinalize, comm_finalize);
    HANDLE(CommRevoke, comm_revoke);
    HANDLE(CommSuspend, comm_suspend);
    HANDLE(CommResume, comm_resume);
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
