// How the kernel that runs a plan affects its time.
#pragma once

#include "plan/simulate/simulate.h"

namespace narrowcast::plan::simulate {

// A block, and the warps of a CTA that reduces which handle blocks, of bfloat16 values (src/select/block_shape.h).
inline constexpr uint32_t block_bytes = 4096, reducing_warps = 15;
// Hand-written all-reduces are launched in clusters from this size of a chunk on (select::min_clustered_bytes).
inline constexpr double min_clustered_bytes = 16 << 20;

// Whether values move in slots, whether some are reduced, and whether none is encoded.
bool uses_slots(const Plan& plan);
bool reduces(const Plan& plan);
bool is_raw(const Plan& plan);

// What a call takes before its first step.
double launch_us_of(const Plan& plan, const Machine& machine);

// The share of the rates at which CTAs encode and decode that the kernel reaches.
double codec_share_of(const Plan& plan, const Machine& machine, const Options& options);

// The machine as the kernel uses it: with its number of CTAs, and the rates of the slowest one. Unchanged if the call
// is a single micro-batch, which no kernel executes.
Machine used_by_kernel(const Plan& plan, const Machine& machine, const Options& options);

}  // namespace narrowcast::plan::simulate
