// The functions of narrowcast/comm.h, but for those of the host's streams.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/shared_memory.h"
#include "bootstrap/unique_id.h"
#include "comm/arguments.h"
#include "comm/launch.h"
#include "comm/used_ids.h"
#include "executor/backend.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "narrowcast/comm.h"
#include "status/error.h"
#include "status/sized_struct.h"

namespace {

using narrowcast::fail;
using narrowcast::fill_struct;
using narrowcast::guarded;
using namespace narrowcast::comm;
using namespace narrowcast::executor;
namespace bootstrap = narrowcast::bootstrap;

constexpr double default_timeout_seconds = 300;

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

ncast_status null_argument(const char* function, const char* argument) {
  return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
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

ncast_status checked_config(int ranks, int rank, const ncast_comm_config* given, ncast_comm_config* config) {
  if (ncast_status status = read_config(given, config))
    return fail(status, "ncast_comm_create: %s", std::string(ncast_last_error()).c_str());
  if (ncast_status status = check_config(ranks, rank, *config)) return status;
  if (config->create_timeout_seconds == 0) config->create_timeout_seconds = config->timeout_seconds;
  return NCAST_OK;
}

ncast_status create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                    const ncast_comm_config* given_config) {
  if (comm == nullptr) return null_argument("ncast_comm_create", "comm");
  *comm = nullptr;
  if (id == nullptr) return null_argument("ncast_comm_create", "id");
  ncast_comm_config config;
  if (ncast_status status = checked_config(ranks, rank, given_config, &config)) return status;
  if (!bootstrap::is_unique_id(*id)) {
    return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_create: id was not made by ncast_get_unique_id");
  }
  const bootstrap::WorldId world = bootstrap::content_of(*id).world;
  if (is_used(world)) {
    return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_create: id was already used for a communicator of this process");
  }
  release_id(*id, config.backend);
  if (ncast_status status = find_backend(config.backend)->create(*id, ranks, rank, config, comm)) return status;
  // All ranks have joined, so no other rank of this process is still to come with the id.
  mark_used(world);
  add_communicator(*comm);
  return NCAST_OK;
}

// What a rank gives the others before they make a communicator.
struct Contribution {
  ncast_unique_id id;  // rank 0's counts
  ncast_status status;
  char why_not[200];
};

ncast_status own_contribution(int ranks, int rank, const ncast_comm_config* given_config, Contribution* own) {
  ncast_comm_config config;
  if (ncast_status status = checked_config(ranks, rank, given_config, &config)) return status;
  return rank == 0 ? ncast_get_unique_id(&own->id) : NCAST_OK;
}

// A rank that can make no communicator still takes part, and says so: the others would wait for it.
ncast_status exchange_and_create(ncast_comm** comm, int ranks, int rank, ncast_exchange exchange, void* context,
                                 const ncast_comm_config* given_config, Contribution* own) {
  constexpr const char* function = "ncast_comm_create_by_exchange";
  own->status = own_contribution(ranks, rank, given_config, own);
  const std::string why_not = own->status == NCAST_OK ? "" : ncast_last_error();
  std::snprintf(own->why_not, sizeof own->why_not, "%s", why_not.c_str());
  std::vector<Contribution> all(static_cast<size_t>(ranks));
  static_assert(sizeof *own <= 512);  // as comm.h has it
  const int failure = exchange(context, own, sizeof *own, all.data());
  if (own->status != NCAST_OK) return fail(own->status, "%s: %s", function, why_not.c_str());
  if (failure != 0) return fail(NCAST_REMOTE_ERROR, "%s: exchange returned %d", function, failure);
  for (int peer = 0; peer < ranks; ++peer) {
    const Contribution& its = all[static_cast<size_t>(peer)];
    if (its.status != NCAST_OK)
      return fail(NCAST_REMOTE_ERROR, "%s: rank %d can make no communicator: %.*s", function, peer,
                  static_cast<int>(sizeof its.why_not), its.why_not);
  }
  return create(comm, ranks, &all[0].id, rank, given_config);
}

ncast_status create_by_exchange(ncast_comm** comm, int ranks, int rank, ncast_exchange exchange, void* context,
                                const ncast_comm_config* given_config) {
  constexpr const char* function = "ncast_comm_create_by_exchange";
  if (comm == nullptr) return null_argument(function, "comm");
  *comm = nullptr;
  if (exchange == nullptr) return null_argument(function, "exchange");
  if (ranks < 1) return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d, not 1 or more", function, ranks);
  Contribution own = {};
  const ncast_status status = exchange_and_create(comm, ranks, rank, exchange, context, given_config, &own);
  if (status != NCAST_OK && bootstrap::is_unique_id(own.id)) release_id(own.id, {});
  return status;
}

}  // namespace

extern "C" {

void ncast_comm_config_defaults(ncast_comm_config* config, size_t struct_bytes) {
  if (config == nullptr) return;
  ncast_comm_config defaults = {};
  defaults.struct_bytes = struct_bytes;
  defaults.backend = NCAST_BACKEND_HOST;
  defaults.device = -1;
  defaults.p2p = -1;
  defaults.timeout_seconds = default_timeout_seconds;
  std::memcpy(config, &defaults, std::min(struct_bytes, sizeof defaults));
  // Members of a newer version: unset.
  if (struct_bytes > sizeof defaults)
    std::memset(reinterpret_cast<char*>(config) + sizeof defaults, 0, struct_bytes - sizeof defaults);
}

ncast_status ncast_get_unique_id(ncast_unique_id* id) {
  return guarded("ncast_get_unique_id", [&] {
    if (id == nullptr) return null_argument("ncast_get_unique_id", "id");
    bootstrap::sweep_stale_segments();
    bootstrap::UniqueIdContent content = {};
    std::memcpy(content.magic, bootstrap::unique_id_magic, sizeof content.magic);
    if (ncast_status status = bootstrap::random_bytes(&content.world, sizeof content.world)) return status;
    for (const ncast_backend number : {NCAST_BACKEND_HOST, NCAST_BACKEND_CUDA}) {
      const Backend* const backend = find_backend(number);
      if (backend == nullptr || backend->prepare_id == nullptr) continue;
      if (ncast_status status = backend->prepare_id(&content)) return status;
    }
    *id = bootstrap::make_unique_id(content);
    return NCAST_OK;
  });
}

ncast_status ncast_remove_stale_segments(int* removed) {
  return guarded("ncast_remove_stale_segments", [&] {
    const int count = bootstrap::sweep_stale_segments();
    if (removed != nullptr) *removed = count;
    return NCAST_OK;
  });
}

ncast_status ncast_comm_create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                               const ncast_comm_config* config) {
  return guarded("ncast_comm_create", [&] { return create(comm, ranks, id, rank, config); });
}

ncast_status ncast_comm_create_by_exchange(ncast_comm** comm, int ranks, int rank, ncast_exchange exchange,
                                           void* context, const ncast_comm_config* config) {
  return guarded("ncast_comm_create_by_exchange",
                 [&] { return create_by_exchange(comm, ranks, rank, exchange, context, config); });
}

ncast_status ncast_comm_destroy(ncast_comm* comm) {
  return guarded("ncast_comm_destroy", [&] {
    if (comm == nullptr) return NCAST_OK;
    if (is_in_open_group(comm)) {
      return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_destroy: the open group of this thread has calls on comm");
    }
    return destroy_communicator("ncast_comm_destroy", comm);
  });
}

ncast_status ncast_comm_abort(ncast_comm* comm) {
  return guarded("ncast_comm_abort", [&] {
    CommUse use;
    if (ncast_status status = use.begin_abort("ncast_comm_abort", comm)) return status;
    return comm->abort();
  });
}

ncast_status ncast_comm_async_error(ncast_comm* comm, char* message, size_t message_capacity) {
  return guarded("ncast_comm_async_error", [&] {
    CommUse use;
    if (ncast_status status = use.begin("ncast_comm_async_error", comm)) return status;
    const ncast_status status = comm->check_error();
    if (message != nullptr && message_capacity > 0) {
      std::snprintf(message, message_capacity, "%s", status == NCAST_OK ? "" : ncast_last_error());
    }
    return status;
  });
}

ncast_status ncast_comm_rank(const ncast_comm* comm, int* rank) {
  return guarded("ncast_comm_rank", [&] {
    CommUse use;
    if (ncast_status status = use.begin("ncast_comm_rank", comm)) return status;
    if (rank == nullptr) return null_argument("ncast_comm_rank", "rank");
    *rank = comm->rank();
    return NCAST_OK;
  });
}

ncast_status ncast_comm_ranks(const ncast_comm* comm, int* ranks) {
  return guarded("ncast_comm_ranks", [&] {
    CommUse use;
    if (ncast_status status = use.begin("ncast_comm_ranks", comm)) return status;
    if (ranks == nullptr) return null_argument("ncast_comm_ranks", "ranks");
    *ranks = comm->ranks();
    return NCAST_OK;
  });
}

ncast_status ncast_comm_get_counters(const ncast_comm* comm, ncast_comm_counters* counters) {
  return guarded("ncast_comm_get_counters", [&] {
    CommUse use;
    if (ncast_status status = use.begin("ncast_comm_get_counters", comm)) return status;
    const Counters all = comm->counters();
    ncast_comm_counters totals = {};
    totals.scratch_bytes = all.scratch_bytes;
    for (const ncast_operation_counters& one : all.operations) {
      totals.calls += one.calls;
      totals.raw_bytes += one.raw_bytes;
      totals.wire_bytes += one.wire_bytes;
    }
    return fill_struct("ncast_comm_get_counters", "counters", totals, counters);
  });
}

ncast_status ncast_comm_get_operation_counters(const ncast_comm* comm, ncast_operation_counters* counters,
                                               int capacity) {
  constexpr const char* function = "ncast_comm_get_operation_counters";
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (capacity < 0) return fail(NCAST_INVALID_ARGUMENT, "%s: capacity is %d, not 0 or more", function, capacity);
    if (counters == nullptr && capacity > 0) return null_argument(function, "counters");
    const Counters all = comm->counters();
    for (size_t i = 0; i < static_cast<size_t>(capacity); ++i)
      counters[i] = i < all.operations.size() ? all.operations[i] : ncast_operation_counters{};
    return NCAST_OK;
  });
}

ncast_status ncast_group_start(void) { return guarded("ncast_group_start", start_group); }
ncast_status ncast_group_end(void) { return guarded("ncast_group_end", end_group); }

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
