#include "executor/host/stage.h"

#include <cstring>

namespace narrowcast::executor::host {

ncast_status Copy::advance(bool* progressed) {
  if (from_ != to_ && bytes_ != 0) std::memmove(to_, from_, bytes_);
  done_ = true;
  *progressed = true;
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
