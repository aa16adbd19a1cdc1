// The operations of a communicator, and groups of them.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/arguments.h"
#include "comm/launch.h"
#include "executor/backend.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "narrowcast/comm.h"
#include "narrowcast/reduction.h"
#include "status/error.h"
#include "status/sized_struct.h"

namespace {

using narrowcast::fail;
using narrowcast::guarded;
using namespace narrowcast::comm;
using namespace narrowcast::executor;

ncast_status check_and_submit(const Call& call) {
  const char* function = function_name(call.operation);
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, call.comm)) return reject(status);
    if (ncast_status status = check_arguments(call)) return reject(status);
    const auto check = find_backend(call.comm->backend())->check;
    if (check != nullptr) {
      if (ncast_status status = check(call)) return reject(status);
    }
    return submit(call);
  });
}

ncast_status read_options(const char* function, const ncast_reduction_options* given, Call* call) {
  ncast_reduction_options options = {};
  if (given == nullptr) return NCAST_OK;
  if (ncast_status status =
          narrowcast::read_struct("options", *given, offsetof(ncast_reduction_options, factor), &options)) {
    const std::string message = ncast_last_error();
    return fail(status, "%s: %s", function, message.c_str());
  }
  if (options.factor != nullptr && options.device_factor != nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "%s: options has both factor and device_factor", function);
  if (options.result_codec != nullptr) call->result_codec = *options.result_codec;
  if (options.factor != nullptr) call->factor = Factor{*options.factor, nullptr};
  if (options.device_factor != nullptr) call->factor = Factor{0, options.device_factor};
  return NCAST_OK;
}

ncast_status end(const char* function, bool is_complete) {
  return guarded(function, [&] { return end_group(function, is_complete); });
}

ncast_status copy_counts(const ncast_comm* comm, const char* buffer, const uint64_t* counts, const uint64_t* offsets,
                         std::vector<PeerCounts::Range>* ranges) {
  constexpr const char* function = "ncast_all_to_all_v";
  if (counts == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: %s_counts is NULL", function, buffer);
  if (offsets == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: %s_offsets is NULL", function, buffer);
  for (int rank = 0; rank < comm->ranks(); ++rank) {
    ranges->push_back({counts[rank] == 0 ? 0 : offsets[rank], counts[rank]});
  }
  return NCAST_OK;
}

}  // namespace

extern "C" {

ncast_status ncast_group_start(void) { return guarded("ncast_group_start", start_group); }
ncast_status ncast_group_end(void) { return end("ncast_group_end", true); }
ncast_status ncast_group_abandon(void) { return end("ncast_group_abandon", false); }

ncast_status ncast_send(const void* values, uint64_t count, ncast_dtype dtype, int peer, ncast_codec codec,
                        ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::send,
                           .send = values,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .peer = peer,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_recv(void* values, uint64_t count, ncast_dtype dtype, int peer, ncast_codec codec, ncast_comm* comm,
                        ncast_stream stream) {
  return check_and_submit({.operation = Operation::recv,
                           .recv = values,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .peer = peer,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_broadcast(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root,
                             ncast_codec codec, ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::broadcast,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .peer = root,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_reduce(const void* send, void* recv, uint64_t count, ncast_dtype dtype, ncast_redop op, int root,
                          ncast_codec codec, ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::reduce,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .redop = op,
                           .peer = root,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_gather(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root, ncast_codec codec,
                          ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::gather,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .peer = root,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_scatter(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root, ncast_codec codec,
                           ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::scatter,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .peer = root,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_all_gather(const void* send, void* recv, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                              ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::all_gather,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_all_to_all(const void* send, void* recv, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                              ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::all_to_all,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_all_to_all_v(const void* send, const uint64_t* send_counts, const uint64_t* send_offsets, void* recv,
                                const uint64_t* recv_counts, const uint64_t* recv_offsets, ncast_dtype dtype,
                                ncast_codec codec, ncast_comm* comm, ncast_stream stream) {
  return guarded("ncast_all_to_all_v", [&] {
    CommUse use;
    if (ncast_status status = use.begin("ncast_all_to_all_v", comm)) return reject(status);
    PeerCounts counts;
    if (ncast_status status = copy_counts(comm, "send", send_counts, send_offsets, &counts.send)) return reject(status);
    if (ncast_status status = copy_counts(comm, "recv", recv_counts, recv_offsets, &counts.recv)) return reject(status);
    return check_and_submit({.operation = Operation::all_to_all_v,
                             .send = send,
                             .recv = recv,
                             .dtype = dtype,
                             .codec = codec,
                             .peer_counts = std::make_shared<const PeerCounts>(std::move(counts)),
                             .comm = comm,
                             .stream = stream});
  });
}

ncast_status ncast_reduce_scatter(const void* send, void* recv, uint64_t count, ncast_dtype dtype, ncast_redop op,
                                  ncast_codec codec, ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::reduce_scatter,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .redop = op,
                           .comm = comm,
                           .stream = stream});
}

ncast_status ncast_run_reduction(ncast_operation operation, const void* send, void* recv, uint64_t count,
                                 ncast_dtype dtype, ncast_redop op, int root, ncast_codec codec,
                                 const ncast_reduction_options* options, ncast_comm* comm, ncast_stream stream) {
  constexpr const char* function = "ncast_run_reduction";
  return guarded(function, [&] {
    const std::optional<Operation> found = narrowcast::operation::find(operation);
    if (!found || !reduces(*found))
      return reject(fail(NCAST_INVALID_ARGUMENT, "%s: operation is %d, which does not reduce", function,
                         static_cast<int>(operation)));
    Call call = {.operation = *found,
                 .send = send,
                 .recv = recv,
                 .count = count,
                 .dtype = dtype,
                 .codec = codec,
                 .redop = op,
                 .peer = has_root(*found) ? root : 0,
                 .comm = comm,
                 .stream = stream};
    if (ncast_status status = read_options(function, options, &call)) return reject(status);
    return check_and_submit(call);
  });
}

ncast_status ncast_all_reduce(const void* send, void* recv, uint64_t count, ncast_dtype dtype, ncast_redop op,
                              ncast_codec codec, ncast_comm* comm, ncast_stream stream) {
  return check_and_submit({.operation = Operation::all_reduce,
                           .send = send,
                           .recv = recv,
                           .count = count,
                           .dtype = dtype,
                           .codec = codec,
                           .redop = op,
                           .comm = comm,
                           .stream = stream});
}

}  // extern "C"
