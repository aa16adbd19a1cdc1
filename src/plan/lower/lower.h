// Lowering: the passes that turn a plan as written into the plan that is verified, compiled and executed.
#pragma once

#include "plan/ir.h"
#include "plan/verify/report.h"

namespace narrowcast::plan::lower {

// Replicates the plan `plan.instances` times. Replica i has the i-th part of every chunk, and groups, channels and
// barriers of its own: number k becomes k * instances + i. A step of several chunks becomes steps of one chunk, because
// the parts of a replica are not adjacent. Errors: INVALID_ARGUMENT for 0 instances; UNSUPPORTED for a plan that would
// become too large.
ncast_status replicate(const Plan& plan, Plan* replicated);

// Fuses adjacent steps of a group, so that values stay in registers:
//   - a copy of what the previous step stored becomes further destinations of that step (receive, then forward);
//   - a reduction into the destination of the previous reduction becomes further sources of that one, which then rounds
//     once.
// A fused step ends when all its parts have ended: it holds the slot of what it receives until the slot for what it
// sends is free, and others wait longer for it. This can cause a deadlock, so the result must be verified.
Plan fuse(const Plan& plan);

// Runs all passes. The plan is not fused if the fused plan is not proved. report: about the lowered plan, which may be
// refuted. Errors: as replicate().
ncast_status lower(const Plan& plan, Plan* lowered, verify::Report* report = nullptr);

}  // namespace narrowcast::plan::lower
