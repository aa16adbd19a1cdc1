#pragma once

#include <memory>

#include "executor/local_work.h"

namespace narrowcast::executor::cuda {

// config.device is set.
ncast_status make_local_work(const ncast_comm_config& config, std::unique_ptr<LocalWork>* work);

}  // namespace narrowcast::executor::cuda
