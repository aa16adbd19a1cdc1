// Helpers for tests of failures.
#pragma once

#include <chrono>
#include <string>

#include "narrowcast/comm.h"
#include "support/ranks.h"

namespace narrowcast::testing {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline bool error_contains(const std::string& part) {
  return std::string(ncast_last_error()).find(part) != std::string::npos;
}

inline ncast_status reduce_one(ncast_comm* comm, ncast_redop op = NCAST_SUM) {
  float value = 1;
  return ncast_all_reduce(&value, &value, 1, NCAST_FLOAT32, op, NCAST_CODEC_RAW, comm, nullptr);
}

}  // namespace narrowcast::testing
