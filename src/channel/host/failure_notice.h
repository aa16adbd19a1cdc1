// Notices of failed creations, for ranks that do not see the failure in the segment of the communicator: they come
// later, or the rank that failed could not open the segment, for example because another user owns it.
//
// A notice is a symbolic link in /dev/shm, whose target is the message. It appears atomically with its content, and
// needs neither a descriptor nor space. Its name is a digest of the id, so only those who know the id can leave one.
#pragma once

#include <string>

#include "bootstrap/world_id.h"
#include "narrowcast/types.h"

namespace narrowcast::channel {

std::string failure_notice_path(const bootstrap::WorldId& id);

// Leaves a notice that `rank` failed, unless there is one.
void leave_failure_notice(const bootstrap::WorldId& id, int rank, ncast_status status, const char* message);

// NCAST_OK if there is no notice. Otherwise the failure, as it appears to the other ranks.
ncast_status check_failure_notice(const bootstrap::WorldId& id);

// Removes old notices of this user.
void sweep_failure_notices();

}  // namespace narrowcast::channel
