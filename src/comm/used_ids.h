// Unique ids that this process has used.
#pragma once

#include "bootstrap/world_id.h"

namespace narrowcast::comm {

// Whether a communicator with this id has been created in this process or, before the fork, in its parent. Remains true
// after the communicator is destroyed. Any thread.
bool is_used(const bootstrap::WorldId& id);
void mark_used(const bootstrap::WorldId& id);

}  // namespace narrowcast::comm
