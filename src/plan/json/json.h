// Plans as JSON, in the form that docs/design/plans.md defines.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "plan/ir.h"

namespace narrowcast::plan::json {

inline constexpr int form_version = 1;

// Reads a plan. Checks the form (keys, types, ranges of numbers, names, the operands that each step needs) and not the
// meaning, which is the verifier's task: indices can point to nothing. Errors: INVALID_ARGUMENT, with line and column
// or the path of the value ("ranks[1].groups[0].steps[3].from[0].chunk"); UNSUPPORTED for another version of the form.
ncast_status read(std::string_view text, Plan* plan);

// The message of an exception of the parser, without its id.
std::string message_of(const std::exception& error);

// A plan as JSON, with a line for each step. Keys that have their default are omitted.
std::string write(const Plan& plan);

}  // namespace narrowcast::plan::json
