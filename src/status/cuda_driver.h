// The oldest driver that this build's CUDA runtime accepts, and how a driver that is too old is reported.
#pragma once

#include <string>

namespace narrowcast {

inline constexpr int cuda_major = 13;
inline constexpr int min_driver = 580;

// What to report when the CUDA runtime refuses the driver. cuda_version: the newest CUDA that the driver supports, as
// cudaDriverGetVersion returns it (12080 for 12.8; 0 without a driver).
std::string refused_driver_text(int cuda_version);

// The text for a cudaError_t: cudaGetErrorString's, or refused_driver_text's where the driver is the cause.
std::string cuda_error_text(int error);

}  // namespace narrowcast
