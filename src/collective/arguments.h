// The checks of a call's arguments, before anything of it is done. Sentences name the function, argument and value.
#pragma once

#include "collective/call.h"

namespace narrowcast::collective {

ncast_status check_arguments(const Call& call);

ncast_status check_config(int ranks, int rank, const ncast_comm_config& config);

}  // namespace narrowcast::collective
