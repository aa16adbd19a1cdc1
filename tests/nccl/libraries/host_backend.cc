// The backend of libnarrowcast_nccl_test.so: calls run on the host, so the tests need no GPU.
#include "nccl/libraries/backend.h"

namespace narrowcast::nccl {

const Backend backend{.id = NCAST_BACKEND_HOST, .calibrates = false};

}  // namespace narrowcast::nccl
