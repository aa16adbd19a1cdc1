// The functions of narrowcast/comm.h.
#include <cstdio>
#include <cstring>

#include "collective/arguments.h"
#include "collective/communicator.h"
#include "collective/launch.h"
#include "collective/stream.h"
#include "narrowcast/comm.h"
#include "status/error.h"

namespace {

using narrowcast::fail;
using narrowcast::guarded;
using namespace narrowcast::collective;
namespace channel = narrowcast::channel;

constexpr size_t default_scratch_bytes = 4 << 20;  // 8 ranks fit into the 64 MB of /dev/shm that containers have
constexpr double default_timeout_seconds = 300;

// What is in a unique id; the rest of its bytes are zero.
struct IdContent {
  char magic[8];
  channel::WorldId world;
};
constexpr char id_magic[8] = {'n', 'c', 'a', 's', 't', 'i', 'd', '1'};
static_assert(sizeof(IdContent) <= NCAST_UNIQUE_ID_BYTES);

ncast_status check_and_submit(const Call& call) {
  return guarded(function_name(call.operation), [&] {
    if (ncast_status status = check_arguments(call)) return reject(status);
    return submit(call);
  });
}

ncast_status null_argument(const char* function, const char* argument) {
  return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

ncast_status create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                    const ncast_comm_config* given_config) {
  if (comm == nullptr) return null_argument("ncast_comm_create", "comm");
  *comm = nullptr;
  if (id == nullptr) return null_argument("ncast_comm_create", "id");
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  if (given_config != nullptr) config = *given_config;
  if (ncast_status status = check_config(ranks, rank, config)) return status;
  IdContent content;
  std::memcpy(&content, id->bytes, sizeof content);
  if (std::memcmp(content.magic, id_magic, sizeof id_magic) != 0) {
    return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_create: id was not made by ncast_get_unique_id");
  }
  StagingShape shape;
  if (ncast_status status = StagingShape::choose(config.scratch_bytes, ranks, &shape)) return status;
  const channel::Limit limit{config.timeout_seconds};
  std::unique_ptr<channel::World> world;
  if (ncast_status status = channel::World::join(content.world, {rank, ranks, shape.lanes, limit}, &world)) {
    const std::string sentence = ncast_last_error();
    return fail(status, "ncast_comm_create: %s", sentence.c_str());
  }
  *comm = new ncast_comm(std::move(world), shape, limit);
  return NCAST_OK;
}

}  // namespace

extern "C" {

void ncast_comm_config_init(ncast_comm_config* config) {
  if (config == nullptr) return;
  *config = {};
  config->struct_bytes = sizeof *config;
  config->backend = NCAST_BACKEND_HOST;
  config->scratch_bytes = default_scratch_bytes;
  config->timeout_seconds = default_timeout_seconds;
}

ncast_status ncast_get_unique_id(ncast_unique_id* id) {
  return guarded("ncast_get_unique_id", [&] {
    if (id == nullptr) return null_argument("ncast_get_unique_id", "id");
    channel::sweep_stale_segments();
    IdContent content;
    std::memcpy(content.magic, id_magic, sizeof id_magic);
    if (ncast_status status = channel::random_bytes(&content.world, sizeof content.world)) return status;
    *id = {};
    std::memcpy(id->bytes, &content, sizeof content);
    return NCAST_OK;
  });
}

ncast_status ncast_comm_create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                               const ncast_comm_config* config) {
  return guarded("ncast_comm_create", [&] { return create(comm, ranks, id, rank, config); });
}

ncast_status ncast_comm_destroy(ncast_comm* comm) {
  return guarded("ncast_comm_destroy", [&] {
    if (comm == nullptr) return NCAST_OK;
    if (is_in_open_group(comm)) {
      return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_destroy: the open group of this thread has calls on comm");
    }
    comm->wait_until_idle();
    delete comm;
    return NCAST_OK;
  });
}

ncast_status ncast_comm_abort(ncast_comm* comm) {
  return guarded("ncast_comm_abort", [&] {
    if (comm == nullptr) return null_argument("ncast_comm_abort", "comm");
    comm->abort();
    return NCAST_OK;
  });
}

ncast_status ncast_comm_async_error(ncast_comm* comm, char* message, size_t message_capacity) {
  return guarded("ncast_comm_async_error", [&] {
    if (comm == nullptr) return null_argument("ncast_comm_async_error", "comm");
    const ncast_status status = comm->check_error();
    if (message != nullptr && message_capacity > 0) {
      std::snprintf(message, message_capacity, "%s", status == NCAST_OK ? "" : ncast_last_error());
    }
    return status;
  });
}

ncast_status ncast_comm_rank(const ncast_comm* comm, int* rank) {
  if (comm == nullptr) return null_argument("ncast_comm_rank", "comm");
  if (rank == nullptr) return null_argument("ncast_comm_rank", "rank");
  *rank = comm->rank();
  return NCAST_OK;
}

ncast_status ncast_comm_ranks(const ncast_comm* comm, int* ranks) {
  if (comm == nullptr) return null_argument("ncast_comm_ranks", "comm");
  if (ranks == nullptr) return null_argument("ncast_comm_ranks", "ranks");
  *ranks = comm->ranks();
  return NCAST_OK;
}

ncast_status ncast_comm_get_counters(const ncast_comm* comm, ncast_comm_counters* counters) {
  return guarded("ncast_comm_get_counters", [&] {
    if (comm == nullptr) return null_argument("ncast_comm_get_counters", "comm");
    if (counters == nullptr) return null_argument("ncast_comm_get_counters", "counters");
    *counters = comm->counters();
    return NCAST_OK;
  });
}

ncast_status ncast_stream_create(ncast_stream* stream) {
  return guarded("ncast_stream_create", [&] {
    if (stream == nullptr) return null_argument("ncast_stream_create", "stream");
    *stream = Stream::add(std::make_shared<Stream>());
    return NCAST_OK;
  });
}

ncast_status ncast_stream_destroy(ncast_stream stream) {
  return guarded("ncast_stream_destroy", [&] {
    if (stream == nullptr || Stream::remove(stream) != nullptr) return NCAST_OK;
    return fail(NCAST_INVALID_ARGUMENT, "ncast_stream_destroy: stream %p is not one that ncast_stream_create made",
                stream);
  });
}

ncast_status ncast_stream_synchronize(ncast_stream stream) {
  return guarded("ncast_stream_synchronize", [&] {
    if (stream == nullptr) return NCAST_OK;  // its calls have run
    if (const std::shared_ptr<Stream> found = Stream::find(stream)) return found->synchronize();
    return fail(NCAST_INVALID_ARGUMENT, "ncast_stream_synchronize: stream %p is not one that ncast_stream_create made",
                stream);
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
