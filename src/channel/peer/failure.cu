#include "channel/peer/failure.h"
#include "status/cuda_driver.h"
#include "status/error.h"

namespace narrowcast::channel {

ncast_status cuda_failure(const char* what, int error) {
  return fail(NCAST_CUDA_ERROR, "%s: %s", what, cuda_error_text(error).c_str());
}

}  // namespace narrowcast::channel
