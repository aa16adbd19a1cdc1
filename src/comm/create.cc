// Unique ids, and the creation of communicators.
#include "comm/create.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/host.h"
#include "bootstrap/shared_memory.h"
#include "bootstrap/tcp_rendezvous.h"
#include "bootstrap/unique_id.h"
#include "comm/arguments.h"
#include "comm/levels/create.h"
#include "comm/plan_selector.h"
#include "comm/used_ids.h"
#include "executor/backend.h"
#include "executor/registry.h"
#include "narrowcast/comm.h"
#include "status/error.h"

namespace {

using narrowcast::fail;
using narrowcast::guarded;
using narrowcast::null_argument;
using namespace narrowcast::comm;
using namespace narrowcast::executor;
namespace bootstrap = narrowcast::bootstrap;

constexpr double default_timeout_seconds = 300;

// As checked_config(), but two levels may have more ranks than a backend connects.
ncast_status config_of(int ranks, int rank, const ncast_comm_config* given, ncast_comm_config* config) {
  const bool need_levels = read_config(given, config) == NCAST_OK && may_need_levels(ranks, *config);
  return need_levels ? checked_config(1, 0, given, config) : checked_config(ranks, rank, given, config);
}

// What each rank sends to the others before the communicator is created.
struct Contribution {
  ncast_unique_id id;  // only that of rank 0 is used
  uint64_t host;       // bootstrap::own_host()
  ncast_backend backend;
  ncast_status status;
  char message[200];  // if status is not OK
};

ncast_status own_contribution(int ranks, int rank, const ncast_comm_config* given_config, Contribution* own) {
  ncast_comm_config config;
  if (ncast_status status = config_of(ranks, rank, given_config, &config)) return status;
  own->backend = config.backend;
  own->host = bootstrap::own_host();
  return rank == 0 ? ncast_get_unique_id(&own->id) : NCAST_OK;
}

ncast_status check_id(const ncast_unique_id& id) {
  if (!bootstrap::is_unique_id(id))
    return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_create: id was not created by ncast_get_unique_id");
  if (is_used(bootstrap::content_of(id).world))
    return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_create: id was already used for a communicator of this process");
  return NCAST_OK;
}

// Error messages get the name of the function; those of backends have it.
ncast_status named(ncast_status status) {
  const std::string message = ncast_last_error();
  return fail(status, "ncast_comm_create: %s", message.c_str());
}

// The steps of a creation after all checks that do not need other ranks.
ncast_status join_and_create(ncast_comm** comm, int ranks, const ncast_unique_id& id, int rank,
                             const ncast_comm_config& config, bool may_have_levels) {
  if (ncast_status status = check_id(id)) return status;
  close_hub(id, config.backend);
  const bootstrap::UniqueIdContent content = bootstrap::content_of(id);
  std::unique_ptr<bootstrap::Rendezvous> all;
  std::optional<LevelShape> shape;
  if (uses_hub(config.backend, content)) {
    const bootstrap::Limit limit{config.create_timeout_seconds};
    if (ncast_status status = bootstrap::TcpRendezvous::join(content.hub, content.world, rank, ranks, limit, &all))
      return named(status);
    if (may_have_levels)
      if (ncast_status status = find_levels(*all, config, &shape)) return named(status);
  }
  if (shape) {
    if (ncast_status status = create_levels(std::move(all), *shape, config, comm)) return named(status);
  } else {
    // config_of() has not checked that so many ranks fit into one level.
    if (ncast_status status = check_config(ranks, rank, config)) return status;
    if (ncast_status status = find_backend(config.backend)->create(id, std::move(all), ranks, rank, config, comm))
      return status;
  }
  // All ranks have joined, so no other rank of this process still needs the id.
  mark_used(content.world);
  (*comm)->set_config(config);
  use_default_selector(**comm);
  add_communicator(*comm);
  return NCAST_OK;
}

// A rank whose arguments are invalid still takes part in the exchange and sends its error, so that the others do not
// wait for it.
ncast_status exchange_and_create(ncast_comm** comm, int ranks, int rank, ncast_exchange exchange, void* context,
                                 const ncast_comm_config* given_config, Contribution* own) {
  constexpr const char* function = "ncast_comm_create_by_exchange";
  own->status = own_contribution(ranks, rank, given_config, own);
  const std::string message = own->status == NCAST_OK ? "" : ncast_last_error();
  std::snprintf(own->message, sizeof own->message, "%s", message.c_str());
  std::vector<Contribution> all(static_cast<size_t>(ranks));
  static_assert(sizeof *own <= 512);  // comm.h promises this
  const int failure = exchange(context, own, sizeof *own, all.data());
  if (own->status != NCAST_OK) return fail(own->status, "%s: %s", function, message.c_str());
  if (failure != 0) return fail(NCAST_REMOTE_ERROR, "%s: exchange returned %d", function, failure);
  for (int peer = 0; peer < ranks; ++peer) {
    const Contribution& theirs = all[static_cast<size_t>(peer)];
    if (theirs.status != NCAST_OK)
      return fail(NCAST_REMOTE_ERROR, "%s: rank %d cannot create the communicator: %.*s", function, peer,
                  static_cast<int>(sizeof theirs.message), theirs.message);
    if (theirs.backend != all[0].backend)
      return fail(NCAST_MISMATCH, "%s: the backend is %s on rank %d, but %s on rank 0", function,
                  backend_name(theirs.backend), peer, backend_name(all[0].backend));
    // Otherwise the ranks on the host of rank 0 would wait for those that cannot join.
    const bool can_join = bootstrap::content_of(all[0].id).spans_hosts != 0 || theirs.host == all[0].host;
    if (theirs.backend == NCAST_BACKEND_HOST && !can_join)
      return fail(NCAST_UNSUPPORTED,
                  "%s: rank %d is on another host or in another container than rank 0, which does not expect this: set "
                  "NARROWCAST_SOCKET_IFNAME there",
                  function, peer);
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
  if (status != NCAST_OK && bootstrap::is_unique_id(own.id)) close_hub(own.id, {});
  return status;
}

}  // namespace

namespace narrowcast::comm {

ncast_status checked_config(int ranks, int rank, const ncast_comm_config* given, ncast_comm_config* config) {
  if (ncast_status status = read_config(given, config))
    return fail(status, "ncast_comm_create: %s", std::string(ncast_last_error()).c_str());
  if (ncast_status status = check_config(ranks, rank, *config)) return status;
  if (config->create_timeout_seconds == 0) config->create_timeout_seconds = config->timeout_seconds;
  return NCAST_OK;
}

ncast_status make_id(bootstrap::Reach reach, bool spans_hosts, uint64_t host, ncast_unique_id* id) {
  bootstrap::sweep_stale_segments();
  bootstrap::UniqueIdContent content = {};
  std::memcpy(content.magic, bootstrap::unique_id_magic, sizeof content.magic);
  if (ncast_status status = bootstrap::random_bytes(&content.world, sizeof content.world)) return status;
  content.spans_hosts = spans_hosts ? 1 : 0;
  content.host = host;
  if (ncast_status status = open_hub(&content, reach)) return status;
  *id = bootstrap::make_unique_id(content);
  return NCAST_OK;
}

ncast_status create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                    const ncast_comm_config* given_config) {
  if (comm == nullptr) return null_argument("ncast_comm_create", "comm");
  *comm = nullptr;
  if (id == nullptr) return null_argument("ncast_comm_create", "id");
  ncast_comm_config config;
  if (ncast_status status = config_of(ranks, rank, given_config, &config)) return status;
  return join_and_create(comm, ranks, *id, rank, config, true);
}

ncast_status create_one_level(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                              const ncast_comm_config* given_config) {
  ncast_comm_config config;
  if (ncast_status status = checked_config(ranks, rank, given_config, &config)) return status;
  return join_and_create(comm, ranks, *id, rank, config, false);
}

}  // namespace narrowcast::comm

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
  // Members that only a newer version has are not set.
  if (struct_bytes > sizeof defaults)
    std::memset(reinterpret_cast<char*>(config) + sizeof defaults, 0, struct_bytes - sizeof defaults);
}

ncast_status ncast_get_unique_id(ncast_unique_id* id) {
  return guarded("ncast_get_unique_id", [&] {
    return id == nullptr ? null_argument("ncast_get_unique_id", "id")
                         : make_id(bootstrap::Reach::anywhere, bootstrap::may_span_hosts(), bootstrap::own_host(), id);
  });
}

ncast_status ncast_get_local_unique_id(ncast_unique_id* id) {
  return guarded("ncast_get_local_unique_id", [&] {
    return id == nullptr ? null_argument("ncast_get_local_unique_id", "id")
                         : make_id(bootstrap::Reach::local, false, 0, id);
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

}  // extern "C"
