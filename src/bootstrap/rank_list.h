// Ranks in messages.
#pragma once

#include <span>
#include <string>

namespace narrowcast::bootstrap {

// "2", "0, 1" or "0-5, 7". ranks: ascending. Long lists end with "...".
std::string rank_list(std::span<const int> ranks);

}  // namespace narrowcast::bootstrap
