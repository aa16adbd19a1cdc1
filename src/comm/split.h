#pragma once

#include "narrowcast/comm.h"

namespace narrowcast::comm {

// As ncast_comm_split, but the new communicator has one level. Does not check whether comm can be used.
ncast_status split_into_one_level(ncast_comm* comm, int color, int key, const ncast_comm_config* config,
                                  ncast_comm** result);

}  // namespace narrowcast::comm
