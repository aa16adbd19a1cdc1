// The oldest driver that this build's CUDA runtime accepts, and the error message for older drivers.
#pragma once

#include <string>

namespace narrowcast {

inline constexpr int cuda_major = 13;
inline constexpr int min_driver = 580;

// The message if the CUDA runtime rejects the driver. cuda_version: the newest CUDA version that the driver supports,
// as returned by cudaDriverGetVersion (12080 for 12.8; 0 without a driver).
std::string rejected_driver_text(int cuda_version);

// The message for a cudaError_t: that of cudaGetErrorString, or rejected_driver_text() if the driver is the cause.
std::string cuda_error_text(int error);

}  // namespace narrowcast
