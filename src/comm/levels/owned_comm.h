// A communicator that another one consists of.
#pragma once

#include <memory>

#include "executor/registry.h"

namespace narrowcast::comm {

struct DestroyComm {
  void operator()(ncast_comm* comm) const {
    static_cast<void>(executor::destroy_communicator("ncast_comm_destroy", comm));
  }
};
using OwnedComm = std::unique_ptr<ncast_comm, DestroyComm>;

}  // namespace narrowcast::comm
