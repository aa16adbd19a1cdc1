// The plans of builders, lowered and proved: no plan runs without a proof.
#pragma once

#include <memory>
#include <string_view>

#include "executor/host/proved_plan.h"
#include "plan/builders/builders.h"

namespace narrowcast::executor::host {

// Builds, lowers and proves a plan. The ranks of a process share it for as long as one of them keeps it: to prove the
// plan of an all-reduce 64 times, 64 ranks on two cores would take a second. Any thread. Errors: those of the builder;
// INTERNAL if the plan is not proved.
ncast_status find_proved(std::string_view builder, const plan::builders::Request& request,
                         std::shared_ptr<const ProvedPlan>* proved);

}  // namespace narrowcast::executor::host
