// Collectives, transfers and groups, with the signatures of nccl.h.
#include <algorithm>
#include <cstddef>
#include <ranges>
#include <string_view>

#include "nccl/calls/group.h"
#include "nccl/entry/guarded.h"
#include "nccl/entry/handlers.h"
#include "nccl/libraries/real_nccl.h"

namespace narrowcast::nccl {
namespace {

int submit_guarded(const Call& call) {
  return guarded([&] { return submit(call); });
}

template <Function function, Operation operation>
int send(const void* send, size_t count, int dtype, int peer, Comm comm, CudaStream stream) {
  return submit_guarded({.function = function,
                         .operation = operation,
                         .send = send,
                         .count = count,
                         .dtype = dtype,
                         .peer = peer,
                         .comm = comm,
                         .stream = stream});
}

template <Function function, Operation operation>
int recv(void* recv, size_t count, int dtype, int peer, Comm comm, CudaStream stream) {
  return submit_guarded({.function = function,
                         .operation = operation,
                         .recv = recv,
                         .count = count,
                         .dtype = dtype,
                         .peer = peer,
                         .comm = comm,
                         .stream = stream});
}

template <Function function, Operation operation>
int bcast(void* buffer, size_t count, int dtype, int root, Comm comm, CudaStream stream) {
  return submit_guarded({.function = function,
                         .operation = operation,
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

template <Function function, Operation operation>
int reduce_config(const void* send, void* recv, size_t count, int dtype, int redop, int root, Comm comm,
                  CudaStream stream, const void* config) {
  return submit_guarded({.function = function,
                         .operation = operation,
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
template <Function function, Operation operation>
int reduce(const void* send, void* recv, size_t count, int dtype, int redop, int root, Comm comm, CudaStream stream) {
  return reduce_config<function, operation>(send, recv, count, dtype, redop, root, comm, stream, nullptr);
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

// NCCL's functions that make a call of the engine: NCCL's name, the operation, and the template of the handler.
#define CALL_HANDLERS(HANDLE)                                   \
  HANDLE(Send, SEND, send)                                      \
  HANDLE(Recv, RECV, recv)                                      \
  HANDLE(Bcast, BROADCAST, bcast)                               \
  HANDLE(AllGather, ALL_GATHER, move)                           \
  HANDLE(AllGatherConfig, ALL_GATHER, move_config)              \
  HANDLE(AlltoAll, ALL_TO_ALL, move)                            \
  HANDLE(AlltoAllConfig, ALL_TO_ALL, move_config)               \
  HANDLE(Broadcast, BROADCAST, rooted)                          \
  HANDLE(BroadcastConfig, BROADCAST, rooted_config)             \
  HANDLE(Gather, GATHER, rooted)                                \
  HANDLE(GatherConfig, GATHER, rooted_config)                   \
  HANDLE(Scatter, SCATTER, rooted)                              \
  HANDLE(ScatterConfig, SCATTER, rooted_config)                 \
  HANDLE(AllReduce, ALL_REDUCE, reduction)                      \
  HANDLE(AllReduceConfig, ALL_REDUCE, reduction_config)         \
  HANDLE(ReduceScatter, REDUCE_SCATTER, reduction)              \
  HANDLE(ReduceScatterConfig, REDUCE_SCATTER, reduction_config) \
  HANDLE(Reduce, REDUCE, reduce)                                \
  HANDLE(ReduceConfig, REDUCE, reduce_config)

struct Handled {
  std::string_view function;
  Operation operation;
};
constexpr Handled all_handled[] = {
#define HANDLE(name, OPERATION, ...) {"nccl" #name, NCAST_OP_##OPERATION},
    CALL_HANDLERS(HANDLE)
#undef HANDLE
};

// The functions that a row of operations.def names, separated by spaces.
constexpr std::string_view named_functions[operation_count] = {
#define NCAST_OPERATION(number, SYMBOL, name, kind, rank, send, recv, in_place, bus_factor, packets, functions) \
  functions,
#include "narrowcast/operations.def"
};

// Every handler is for a function that the row of its operation names, and every such function has a handler: handlers
// are distinct, because each is a case of a switch.
constexpr bool is_named(const Handled& handled) {
  for (const auto word : std::views::split(named_functions[handled.operation], ' '))
    if (std::string_view(word.begin(), word.end()) == handled.function) return true;
  return false;
}
constexpr size_t named_function_count() {
  size_t count = 0;
  for (const std::string_view functions : named_functions)
    for ([[maybe_unused]] const auto word : std::views::split(functions, ' ')) ++count;
  return count;
}
static_assert(std::ranges::all_of(all_handled, is_named), "CALL_HANDLERS has a function that operations.def lacks");
static_assert(std::size(all_handled) == named_function_count(),
              "operations.def has a function that CALL_HANDLERS lacks");

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): the name of a template
#define HANDLE(name, OPERATION, handler) \
  case Function::name: return reinterpret_cast<void*>(&handler<Function::name, NCAST_OP_##OPERATION>);
// NOLINTEND(bugprone-macro-parentheses)

void* call_handler(Function function) {
  switch (function) {
    CALL_HANDLERS(HANDLE)
    case Function::GroupStart: return reinterpret_cast<void*>(&group_start);
    case Function::GroupEnd: return reinterpret_cast<void*>(&group_end);
    case Function::GroupSimulateEnd: return reinterpret_cast<void*>(&group_simulate_end);
    default: return nullptr;
  }
}
#undef HANDLE

}  // namespace narrowcast::nccl
