// The interface of a backend, and the backends of this build.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/unique_id.h"
#include "executor/call.h"
#include "executor/local_work.h"

namespace narrowcast::executor {

struct Backend {
  // Checks the backend's own limits of a configuration that has passed the checks common to all backends. Does not wait
  // for other ranks, so a rank can be rejected before it contacts them. A scratch_bytes of 0 means the backend's
  // default.
  ncast_status (*check_config)(int ranks, const ncast_comm_config& config);

  // As ncast_comm_create. The id comes from ncast_get_unique_id, and config is valid. rendezvous: of all ranks, who
  // have met at the hub of the id; NULL if they do not use it.
  ncast_status (*create)(const ncast_unique_id& id, std::unique_ptr<bootstrap::Rendezvous> rendezvous, int ranks,
                         int rank, const ncast_comm_config& config, ncast_comm** comm);

  // Runs or enqueues calls that were launched together, in the order in which they were made, all on communicators of
  // this backend. The caller has checked their arguments, has matched sends from a rank to itself with receives, and
  // has checked that none of the communicators has failed.
  ncast_status (*launch)(const std::vector<Call>& calls);

  // What a rank of a communicator of two levels does with its own memory (comm/levels/). config.device is set.
  ncast_status (*make_local_work)(const ncast_comm_config& config, std::unique_ptr<LocalWork>* work);

  // Checks the arguments that only this backend knows, such as streams, before the call starts. May be NULL.
  ncast_status (*check)(const Call& call) = nullptr;

  // Whether ranks with this id meet at a hub in the process that created it. NULL: they do not. Call uses_hub() below.
  bool (*uses_hub)(const bootstrap::UniqueIdContent& content) = nullptr;
};

// Called at load time by a static object in the backend's file, so a build has the backends whose files are linked into
// it. `backend` is copied.
void add_backend(ncast_backend number, const Backend& backend);

// NULL if this build does not have the backend.
const Backend* find_backend(ncast_backend number);

// Whether the backend's ranks with this id meet at its hub.
bool uses_hub(ncast_backend number, const bootstrap::UniqueIdContent& content);
// Starts the hub of a new unique id, whose other members are set, if any backend may use it.
ncast_status open_hub(bootstrap::UniqueIdContent* content, bootstrap::Reach reach);
// Ends the hub of an id in this process, unless ranks have joined there, or ranks of backend `kept` will.
void close_hub(const ncast_unique_id& id, std::optional<ncast_backend> kept);

// For example "host". NULL if the number is not one of ncast_backend.
const char* backend_name(ncast_backend number);

}  // namespace narrowcast::executor
