#include "nccl/ranks/exchange.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/forward.h"
#include "nccl/libraries/real_nccl.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

constexpr auto poll_interval = std::chrono::microseconds(20);
constexpr int int8 = 0;

// A nonblocking communicator continues the call in the background.
int wait_while_in_progress(Communicator& comm) {
  using GetAsyncError = int(Comm, int*);
  for (;;) {
    int state = success;
    if (const int failed = real<GetAsyncError>(Function::CommGetAsyncError)(comm.handle, &state)) return failed;
    if (state != in_progress) return state;
    if (comm.aborted.load()) return internal_error;
    std::this_thread::sleep_for(poll_interval);
  }
}

// For failures of this rank only. The other ranks detect failures of NCCL themselves.
int mark_broken(Communicator& comm) {
  comm.broken.store(true);
  log(Level::warn, "rank %d of %d rejects all calls: CUDA failed while the ranks exchanged settings", comm.rank,
      comm.ranks);
  return unhandled_cuda_error;
}

// Polls, so that an abort or an error of the communicator ends the wait.
int wait_for_stream(Communicator& comm) {
  LongWait wait;
  for (;;) {
    const int state = driver()->cuStreamQuery(comm.exchange_stream);
    if (state == 0) return success;
    if (state != cuda_not_ready) return mark_broken(comm);
    if (comm.aborted.load()) return internal_error;
    if (const int failed = wait_while_in_progress(comm)) return failed;
    // All ranks should be in the call that creates the communicator.
    if (comm.attaches_at_creation && wait.becomes_long())
      log(Level::warn, "rank %d of %d waits for the others to attach: NARROWCAST_ATTACH must be init on all ranks",
          comm.rank, comm.ranks);
    std::this_thread::sleep_for(poll_interval);
  }
}

bool has_resources(Communicator& comm) {
  const size_t bytes = max_exchange_bytes * (static_cast<size_t>(comm.ranks) + 1);
  return (comm.exchange_stream != nullptr ||
          driver()->cuStreamCreate(&comm.exchange_stream, stream_non_blocking) == 0) &&
         (comm.exchange_memory != nullptr || driver()->cuMemAlloc_v2(&comm.exchange_memory, bytes) == 0);
}

}  // namespace

int exchange_bytes(void* context, const void* mine, size_t bytes, void* all) {
  Communicator& comm = *static_cast<Communicator*>(context);
  const Driver& cuda = *driver();
  const InsideNccl inside;
  const std::lock_guard lock(comm.exchanging);
  if (comm.aborted.load()) return internal_error;
  if (bytes > max_exchange_bytes || !has_resources(comm)) return mark_broken(comm);
  void* const own = comm.exchange_memory;
  void* const gathered = static_cast<char*>(own) + max_exchange_bytes;
  if (cuda.cuMemcpyHtoDAsync_v2(own, mine, bytes, comm.exchange_stream) != 0) return mark_broken(comm);
  int result = forward({.function = Function::AllGather,
                        .operation = NCAST_OP_ALL_GATHER,
                        .send = own,
                        .recv = gathered,
                        .count = bytes,
                        .dtype = int8,
                        .comm = comm.handle,
                        .stream = comm.exchange_stream});
  if (result == in_progress) {
    comm.blocking = false;
    result = wait_while_in_progress(comm);
  }
  if (result == success) result = wait_for_stream(comm);
  if (result != success) return result;
  const bool copied =
      cuda.cuMemcpyDtoHAsync_v2(all, gathered, bytes * static_cast<size_t>(comm.ranks), comm.exchange_stream) == 0 &&
      cuda.cuStreamSynchronize(comm.exchange_stream) == 0;
  return copied ? success : mark_broken(comm);
}

}  // namespace narrowcast::nccl
