// Effects of the kernel that runs a plan.
#pragma once

#include "plan/simulate/simulate.h"

namespace narrowcast::plan::simulate {

// The size of a block of bfloat16 values, and the number of warps of a CTA that handle blocks in reductions
// (src/select/block_shape.h).
inline constexpr uint32_t block_bytes = 4096, reducing_warps = 15;
// The chunk size from which hand-written all-reduces are launched in clusters (select::min_clustered_bytes).
inline constexpr double min_clustered_bytes = 16 << 20;

// Whether values move in slots; whether some are reduced; whether none is encoded.
bool uses_slots(const Plan& plan);
bool reduces(const Plan& plan);
bool is_raw(const Plan& plan);

// The time of a call before its first step.
double launch_us_of(const Plan& plan, const Machine& machine);

// The fraction of the encoding and decoding rates of CTAs that the kernel reaches.
double codec_share_of(const Plan& plan, const Machine& machine, const Options& options);

// The machine with the CTAs of the kernel, and the rates of the slowest one. Unchanged if the call is a single
// micro-batch.
Machine used_by_kernel(const Plan& plan, const Machine& machine, const Options& options);

}  // namespace narrowcast::plan::simulate
