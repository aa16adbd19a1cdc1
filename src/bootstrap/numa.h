// Placing memory on NUMA nodes.
#pragma once

#include <cstddef>

#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

enum class NodePolicy { preferred, required };

// Has the pages of a mapping, private or of shared memory, allocated on a NUMA node when they are first used. Pages in
// shared memory are placed for all processes. data: a multiple of the page size. With `preferred` a full node is not an
// error: the pages are then allocated elsewhere. Errors: INVALID_ARGUMENT if there is no such node; SYSTEM_ERROR, for
// example in a container that may not place memory.
ncast_status place_on_node(void* data, size_t bytes, int node, NodePolicy policy);

}  // namespace narrowcast::bootstrap
