#include "nccl/libraries/backend.h"

namespace narrowcast::nccl {

const Backend backend{.id = NCAST_BACKEND_CUDA, .max_ranks = 8, .calibrates = true};

}  // namespace narrowcast::nccl
