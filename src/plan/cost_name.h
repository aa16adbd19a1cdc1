// The names of plans in cost models.
#pragma once

#include <string_view>

namespace narrowcast::plan {

// Prefix of the names: "plan:ring" is the plan of a builder, "plan:mine@1a2b3c4d" one of a user.
inline constexpr std::string_view cost_prefix = "plan:";

}  // namespace narrowcast::plan
