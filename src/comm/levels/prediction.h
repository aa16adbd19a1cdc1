// Predicts calls of two levels from the decisions about their steps.
#pragma once

#include <memory>

#include "comm/levels/shape.h"
#include "select/decider.h"
#include "select/two_levels.h"

namespace narrowcast::comm {

// within, between: the deciders of the levels, which make the same decisions when the steps run. The result may outlive
// the communicator. are_alike: whether those of all ranks have the same traits and costs. Otherwise no steps are known.
// overlaps: as in StepTaker.
std::shared_ptr<const select::TwoLevels> levels_of(const LevelShape& shape, bool rounds_partial_sums,
                                                   std::shared_ptr<select::Decider> within,
                                                   std::shared_ptr<select::Decider> between, bool are_alike,
                                                   bool overlaps);

}  // namespace narrowcast::comm
