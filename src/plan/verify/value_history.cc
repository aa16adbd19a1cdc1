#include "plan/verify/value_history.h"

#include <algorithm>
#include <utility>

namespace narrowcast::plan::verify {
namespace {

constexpr size_t max_path = 24;

}  // namespace

uint32_t ValueHistory::add(uint32_t flat, Contributions::Set set, std::span<const uint32_t> sources) {
  Node node{flat, set, {}};
  for (const uint32_t source : sources)
    if (source != none) node.sources.push_back(source);
  memory_.grow(2 * sizeof(Node) + sources.size() * sizeof(uint32_t));
  nodes_.push_back(std::move(node));
  return static_cast<uint32_t>(nodes_.size() - 1);
}

std::vector<uint32_t> ValueHistory::path_to(uint32_t value, const Contributions& contributions,
                                            Contributions::Contribution contribution) const {
  std::vector<uint32_t> path;
  while (value != none && path.size() < max_path) {
    const Node& node = nodes_[value];
    path.push_back(node.flat);
    uint32_t next = none;
    for (const uint32_t source : node.sources)
      if (contribution.rank < 0 || contributions.contains(nodes_[source].set, contribution.chunk, contribution.rank))
        next = source;
    value = next;
  }
  std::ranges::reverse(path);
  return path;
}

std::vector<uint32_t> ValueHistory::sum_of(uint32_t flat) const {
  std::vector<uint32_t> steps;
  spend(nodes_.size());
  const auto node = std::ranges::find(nodes_, flat, &Node::flat);
  if (node == nodes_.end()) return steps;
  for (const uint32_t source : node->sources) steps.push_back(nodes_[source].flat);
  steps.push_back(flat);
  return steps;
}

}  // namespace narrowcast::plan::verify
