// Unique ids that this process has used.
#pragma once

#include "bootstrap/world_id.h"

namespace narrowcast::comm {

// True once a communicator of this id was created in this process, or in the one that it was forked from, even if it
// has been destroyed. Any thread.
bool is_used(const bootstrap::WorldId& id);
void mark_used(const bootstrap::WorldId& id);

}  // namespace narrowcast::comm
