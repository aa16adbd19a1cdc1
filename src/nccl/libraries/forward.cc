#include "nccl/libraries/forward.h"

#include "nccl/libraries/real_nccl.h"
#include "nccl/report/last_error.h"

namespace narrowcast::nccl {
namespace {

thread_local int depth = 0;

// The signatures of nccl.h; the Config variants take an ncclCollConfig_t as their last argument.
using Move = int(const void*, void*, size_t, int, Comm, CudaStream);
using MoveConfig = int(const void*, void*, size_t, int, Comm, CudaStream, const void*);
using Rooted = int(const void*, void*, size_t, int, int, Comm, CudaStream);  // also reductions to all ranks
using RootedConfig = int(const void*, void*, size_t, int, int, Comm, CudaStream, const void*);
using Reduce = int(const void*, void*, size_t, int, int, int, Comm, CudaStream);
using ReduceConfig = int(const void*, void*, size_t, int, int, int, Comm, CudaStream, const void*);
using Bcast = int(void*, size_t, int, int, Comm, CudaStream);
using Send = int(const void*, size_t, int, int, Comm, CudaStream);

int call_real(const Call& c) {
  const Function f = c.function;
  switch (f) {
    case Function::Send: return real<Send>(f)(c.send, c.count, c.dtype, c.peer, c.comm, c.stream);
    case Function::Recv:
    case Function::Bcast: return real<Bcast>(f)(c.recv, c.count, c.dtype, c.peer, c.comm, c.stream);
    case Function::AllGather:
    case Function::AlltoAll: return real<Move>(f)(c.send, c.recv, c.count, c.dtype, c.comm, c.stream);
    case Function::AllGatherConfig:
    case Function::AlltoAllConfig:
      return real<MoveConfig>(f)(c.send, c.recv, c.count, c.dtype, c.comm, c.stream, c.config);
    case Function::AllReduce:
    case Function::ReduceScatter: return real<Rooted>(f)(c.send, c.recv, c.count, c.dtype, c.redop, c.comm, c.stream);
    case Function::AllReduceConfig:
    case Function::ReduceScatterConfig:
      return real<RootedConfig>(f)(c.send, c.recv, c.count, c.dtype, c.redop, c.comm, c.stream, c.config);
    case Function::Broadcast:
    case Function::Gather:
    case Function::Scatter: return real<Rooted>(f)(c.send, c.recv, c.count, c.dtype, c.peer, c.comm, c.stream);
    case Function::BroadcastConfig:
    case Function::GatherConfig:
    case Function::ScatterConfig:
      return real<RootedConfig>(f)(c.send, c.recv, c.count, c.dtype, c.peer, c.comm, c.stream, c.config);
    case Function::Reduce: return real<Reduce>(f)(c.send, c.recv, c.count, c.dtype, c.redop, c.peer, c.comm, c.stream);
    case Function::ReduceConfig:
      return real<ReduceConfig>(f)(c.send, c.recv, c.count, c.dtype, c.redop, c.peer, c.comm, c.stream, c.config);
    default: return internal_error;
  }
}

}  // namespace

InsideNccl::InsideNccl() { ++depth; }
InsideNccl::~InsideNccl() { --depth; }
bool InsideNccl::active() { return depth > 0; }

int forward(const Call& call) {
  const InsideNccl inside;
  const int result = call_real(call);
  // ncclGetLastError then returns NCCL's own message.
  if (result != success && result != in_progress) clear_last_error();
  return result;
}

}  // namespace narrowcast::nccl
