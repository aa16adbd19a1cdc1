#include "nccl/libraries/backend.h"

namespace narrowcast::nccl {

const Backend backend{.id = NCAST_BACKEND_CUDA, .calibrates = true};

}  // namespace narrowcast::nccl
