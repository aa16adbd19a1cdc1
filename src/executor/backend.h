// What a backend does for the interface, and which backends this build has.
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

  // Joins as ncast_comm_create says. The id is one that ncast_get_unique_id made, and config is checked.
  ncast_status (*create)(const ncast_unique_id& id, int ranks, int rank, const ncast_comm_config& config,
                         ncast_comm** comm);

  // Runs or enqueues calls that were launched together, all of this backend's communicators, in the order in which they
  // were made. They are checked, sends to oneself have their receives, and none of the communicators was in error.
  ncast_status (*launch)(const std::vector<Call>& calls);

  // Refuses a call for what only this backend knows, such as its streams, before anything of it is done. May be NULL.
  ncast_status (*check)(const Call& call) = nullptr;

  // Puts into a new unique id what only this backend needs there. May be NULL.
  ncast_status (*prepare_id)(bootstrap::UniqueIdContent* content) = nullptr;

  // Frees what that holds in this process, unless ranks have come with the id: none will. May be NULL.
  void (*release_id)(const bootstrap::UniqueIdContent& content) = nullptr;
};

// At load time, by a static object of the backend's file: a build has the backends whose files are in it. `backend` is
// copied.
void add_backend(ncast_backend number, const Backend& backend);

// NULL when this build has none of this number.
const Backend* find_backend(ncast_backend number);

// With this id nobody comes any more, but for ranks of the backend `kept` if there is one.
void release_id(const ncast_unique_id& id, std::optional<ncast_backend> kept);

// "host"; NULL when there is no backend of this number, in any build.
const char* backend_name(ncast_backend number);

}  // namespace narrowcast::executor
