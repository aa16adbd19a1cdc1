// Collectives, transfers and groups, with the signatures of nccl.h.
#include "nccl/calls/group.h"
#include "nccl/entry/guarded.h"
#include "nccl/entry/handlers.h"
#include "nccl/libraries/real_nccl.h"

namespace narrowcast::nccl {
namespace {

int submit_guarded(const Call& call) {
  return guarded([&] { return submit(call); });
}

int send(const void* send, size_t count, int dtype, int peer, Comm comm, CudaStream stream) {
  return submit_guarded({.function = Function::Send,
                         .operation = NCAST_OP_SEND,
                         .send = send,
                         .count = count,
                         .dtype = dtype,
                         .peer = peer,
                         .comm = comm,
                         .stream = stream});
}

int recv(void* recv, size_t count, int dtype, int peer, Comm comm, CudaStream stream) {
  return submit_guarded({.function = Function::Recv,
                         .operation = NCAST_OP_RECV,
                         .recv = recv,
                         .count = count,
                         .dtype = dtype,
                         .peer = peer,
                         .comm = comm,
                         .stream = stream});
}

int bcast(void* buffer, size_t count, int dtype, int root, Comm comm, CudaStream stream) {
  return submit_guarded({.function = Function::Bcast,
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
int move_config(const void* send, void* recv, size_t count, int dtype, Comm comm, CudaStream stream,
                const void* config) {
  return submit_guarded({.function = function,
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
  return move_config<function, operation>(send, recv, count, dtype, comm, stream, nullptr);
}

template <Function function, Operation operation>
int rooted_config(const void* send, void* recv, size_t count, int dtype, int root, Comm comm, CudaStream stream,
                  const void* config) {
  return submit_guarded({.function = function,
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
  return rooted_config<function, operation>(send, recv, count, dtype, root, comm, stream, nullptr);
}

template <Function function, Operation operation>
int reduction_config(const void* send, void* recv, size_t count, int dtype, int redop, Comm comm, CudaStream stream,
                     const void* config) {
  return submit_guarded({.function = function,
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
  return reduction_config<function, operation>(send, recv, count, dtype, redop, comm, stream, nullptr);
}

int reduce_config(const void* send, void* recv, size_t count, int dtype, int redop, int root, Comm comm,
                  CudaStream stream, const void* config) {
  return submit_guarded({.function = config == nullptr ? Function::Reduce : Function::ReduceConfig,
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
  return reduce_config(send, recv, count, dtype, redop, root, comm, stream, nullptr);
}

int group_start() {
  return guarded([] { return start_group(); });
}
int group_end() {
  return guarded([] { return end_group(); });
}
int group_simulate_end(void* info) {
  return guarded([&] { return end_group_by(real<int(void*)>(Function::GroupSimulateEnd), info); });
}

}  // namespace

void* call_handler(Function function) {
#define HANDLE(name, ...) \
  case Function::name: return reinterpret_cast<void*>(&__VA_ARGS__)
  switch (function) {
    HANDLE(Send, send);
    HANDLE(Recv, recv);
    HANDLE(Bcast, bcast);
    HANDLE(AllGather, move<Function::AllGather, NCAST_OP_ALL_GATHER>);
    HANDLE(AllGatherConfig, move_config<Function::AllGatherConfig, NCAST_OP_ALL_GATHER>);
    HANDLE(AlltoAll, move<Function::AlltoAll, NCAST_OP_ALL_TO_ALL>);
    HANDLE(AlltoAllConfig, move_config<Function::AlltoAllConfig, NCAST_OP_ALL_TO_ALL>);
    HANDLE(Broadcast, rooted<Function::Broadcast, NCAST_OP_BROADCAST>);
    HANDLE(BroadcastConfig, rooted_config<Function::BroadcastConfig, NCAST_OP_BROADCAST>);
    HANDLE(Gather, rooted<Function::Gather, NCAST_OP_GATHER>);
    HANDLE(GatherConfig, rooted_config<Function::GatherConfig, NCAST_OP_GATHER>);
    HANDLE(Scatter, rooted<Function::Scatter, NCAST_OP_SCATTER>);
    HANDLE(ScatterConfig, rooted_config<Function::ScatterConfig, NCAST_OP_SCATTER>);
    HANDLE(AllReduce, reduction<Function::AllReduce, NCAST_OP_ALL_REDUCE>);
    HANDLE(AllReduceConfig, reduction_config<Function::AllReduceConfig, NCAST_OP_ALL_REDUCE>);
    HANDLE(ReduceScatter, reduction<Function::ReduceScatter, NCAST_OP_REDUCE_SCATTER>);
    HANDLE(ReduceScatterConfig, reduction_config<Function::ReduceScatterConfig, NCAST_OP_REDUCE_SCATTER>);
    HANDLE(Reduce, reduce);
    HANDLE(ReduceConfig, reduce_config);
    HANDLE(GroupStart, group_start);
    HANDLE(GroupEnd, group_end);
    HANDLE(GroupSimulateEnd, group_simulate_end);
    default: return nullptr;
  }
#undef HANDLE
}

}  // namespace narrowcast::nccl
