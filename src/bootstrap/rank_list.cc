#include "bootstrap/rank_list.h"

namespace narrowcast::bootstrap {

std::string rank_list(std::span<const int> ranks) {
  constexpr size_t longest = 160;
  std::string list;
  for (size_t first = 0, last = 0; first < ranks.size(); first = last + 1) {
    for (last = first; last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1;) ++last;
    if (last == first + 1) last = first;  // "3, 4", not "3-4"
    if (list.size() > longest) return list + ", ...";
    if (!list.empty()) list += ", ";
    list += std::to_string(ranks[first]);
    if (last > first) list += "-" + std::to_string(ranks[last]);
  }
  return list;
}

}  // namespace narrowcast::bootstrap
