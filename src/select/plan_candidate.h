// The plans that can run a call instead of the built-in way: those of known algorithms on the host backend, and those
// that the user has added to a communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "select/call_shape.h"

namespace narrowcast::select {

// The same on all ranks.
struct PlanCandidate {
  std::string name;  // the key of its costs; is_plan_name()
  std::string plan;  // its name for people, such as "ring"
  Operation operation = {};
  int ranks = 0;            // 0: any number
  std::optional<int> root;  // if the plan is for one root
  uint64_t min_bytes = 0;   // as in CallShape
  uint64_t max_bytes = UINT64_MAX;
  std::optional<ncast_dtype> dtype;    // if the plan was prepared for one type
  std::optional<ncast_redop> redop;    // if the plan was prepared for one reduction
  std::optional<Placement> placement;  // if it only works so
  bool has_same_results = true;        // as the built-in way: every value is rounded once, in rank order
  std::optional<ncast_codec> codec;    // of its messages; nothing: it is built with raw or an allowed codec
  bool always = false;                 // runs every call that it suits, whatever its time
  uint32_t loaded = 0;                 // the number of the loaded plan; 0: a plan of a builder
};

using PlanList = std::vector<std::shared_ptr<const PlanCandidate>>;

// The plans of builders with which the host backend can run calls, apart from its default.
const PlanList& builder_candidates();

// Why the plan cannot run the call, although it is a plan of the operation; NULL if it can. A string constant.
const char* why_not(const PlanCandidate& plan, const CallShape& shape);
// Why the plan is not chosen by its time, although it can run the call: its results would differ. NULL: it may be.
const char* why_not_by_cost(const PlanCandidate& plan, const CallShape& shape);
// The codecs with which the plan may run the call by its time: only exact ones, because a plan may encode values
// repeatedly, and errors would add up.
std::vector<ncast_codec> codecs_by_cost(const PlanCandidate& plan, const CallShape& shape);

// The name of the plan's costs with this codec, which counts only if the plan states none.
std::string cost_name_of(const PlanCandidate& plan, ncast_codec codec);

// Chooses between plans that can run a call, for example by a rule of the user. The result depends on the arguments
// only, and is the same on all ranks.
struct Selected {
  static constexpr int built_in = -1, by_cost = -2;
};
// plans: not empty. Returns an index in `plans`, or a constant of Selected.
using PlanSelector = std::function<int(const CallShape& shape, std::span<const PlanCandidate* const> plans)>;

}  // namespace narrowcast::select
