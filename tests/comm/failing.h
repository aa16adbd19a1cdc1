// Helpers for tests of failures.
#pragma once

#include <chrono>

#include "narrowcast/comm.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline ncast_status reduce_one(ncast_comm* comm, ncast_redop op = NCAST_SUM) {
  float value = 1;
  return ncast_all_reduce(&value, &value, 1, NCAST_FLOAT32, op, NCAST_CODEC_RAW, comm, nullptr);
}

}  // namespace narrowcast::testing
