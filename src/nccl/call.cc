#include "nccl/call.h"

#include "nccl/error.h"
#include "nccl/real_nccl.h"

namespace narrowcast::nccl {
namespace {

thread_local int depth = 0;

// The signatures of nccl.h; those with Config take an ncclCollConfig_t after them.
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
bool InsideNccl::here() { return depth > 0; }

size_t value_bytes(int dtype) {
  constexpr size_t bytes[value_types] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return dtype < 0 || dtype >= value_types ? 0 : bytes[dtype];
}

int forward(const Call& call) {
  const InsideNccl inside;
  const int result = call_real(call);
  // NCCL has a sentence of its own for it.
  if (result != success && result != in_progress) forget_engine_error();
  return result;
}

}  // namespace narrowcast::nccl
