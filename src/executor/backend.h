// The interface of a backend, and the backends of this build.
#pragma once

#include <optional>
#include <vector>

#include "executor/call.h"

namespace narrowcast::bootstrap {
struct UniqueIdContent;
}

namespace narrowcast::executor {

struct Backend {
  // Refuses a configuration for what only this backend knows, once it is checked for what all have in common, and waits
  // for nobody: a rank that is refused here need not come to the others. A scratch_bytes of 0 means the backend's own
  // default.
  ncast_status (*check_config)(int ranks, const ncast_comm_config& config);

  // As ncast_comm_create. The id comes from ncast_get_unique_id, and config is valid.
  ncast_status (*create)(const ncast_unique_id& id, int ranks, int rank, const ncast_comm_config& config,
                         ncast_comm** comm);

  // Runs or enqueues calls that were launched together, in the order in which they were made, all on communicators of
  // this backend. They are valid, sends to the own rank have their receives, and none of the communicators had failed.
  ncast_status (*launch)(const std::vector<Call>& calls);

  // Checks the arguments that only this backend knows, such as streams, before the call starts. May be NULL.
  ncast_status (*check)(const Call& call) = nullptr;

  // Adds to a new unique id what only this backend needs. May be NULL.
  ncast_status (*prepare_id)(bootstrap::UniqueIdContent* content) = nullptr;

  // Frees the resources of prepare_id in this process, unless ranks have joined with the id. May be NULL.
  void (*release_id)(const bootstrap::UniqueIdContent& content) = nullptr;
};

// Called at load time by a static object in the backend's file: a build has the backends whose files are linked.
// `backend` is copied.
void add_backend(ncast_backend number, const Backend& backend);

// NULL if this build does not have it.
const Backend* find_backend(ncast_backend number);

// No rank will join with this id, except ranks of the backend `kept` if it is set: the other backends free their
// resources.
void release_id(const ncast_unique_id& id, std::optional<ncast_backend> kept);

// For example "host"; NULL if no build has a backend of this number.
const char* backend_name(ncast_backend number);

}  // namespace narrowcast::executor
