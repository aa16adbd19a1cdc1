// The functions of plan.h that every plan needs.
#include <algorithm>
#include <memory>
#include <vector>

#include "plan/handle.h"
#include "plan/json/json.h"
#include "plan/lower/lower.h"
#include "plan/verify/verify.h"
#include "status/sized_struct.h"

using namespace narrowcast;

namespace {

uint64_t steps_of(const std::vector<plan::Step>& steps) {
  uint64_t count = steps.size();
  for (const plan::Step& step : steps) count += step.body.size();
  return count;
}

ncast_plan_info info_of(const ncast_plan& handle) {
  const plan::Plan& plan = handle.plan;
  ncast_plan_info info = {};
  info.struct_bytes = sizeof info;
  info.name = plan.name.c_str();
  info.operation = static_cast<ncast_operation>(plan.operation);
  info.root = plan.root;
  info.ranks = plan.rank_count();
  info.chunks = plan.chunks;
  for (const plan::Rank& rank : plan.ranks) {
    info.groups = std::max(info.groups, static_cast<uint32_t>(rank.groups.size()));
    for (const plan::Group& group : rank.groups) info.steps += steps_of(group.steps);
  }
  info.cost_name = handle.cost_name().c_str();
  return info;
}

}  // namespace

extern "C" {

ncast_status ncast_plan_read(const char* json, size_t bytes, ncast_plan** plan) {
  constexpr const char* function = "ncast_plan_read";
  if (json == nullptr || plan == nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function, json == nullptr ? "json" : "plan");
  return guarded(function, [&] {
    auto read = std::make_unique<ncast_plan>();
    if (ncast_status status = plan::json::read({json, bytes}, &read->plan)) return status;
    *plan = read.release();
    return NCAST_OK;
  });
}

ncast_status ncast_plan_write(const ncast_plan* plan, ncast_text** json) {
  constexpr const char* function = "ncast_plan_write";
  if (ncast_status status = plan::check_plan(function, plan)) return status;
  return make_text(function, json, [&] { return plan::json::write(plan->plan); });
}

ncast_status ncast_plan_describe(const ncast_plan* plan, ncast_plan_info* info) {
  constexpr const char* function = "ncast_plan_describe";
  if (ncast_status status = plan::check_plan(function, plan)) return status;
  return guarded(function, [&] { return fill_struct(function, "info", info_of(*plan), info); });
}

ncast_status ncast_plan_lower(const ncast_plan* plan, ncast_plan** lowered) {
  constexpr const char* function = "ncast_plan_lower";
  if (ncast_status status = plan::check_plan(function, plan)) return status;
  if (lowered == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: lowered is NULL", function);
  return guarded(function, [&] {
    auto made = std::make_unique<ncast_plan>();
    if (ncast_status status = plan::lower::lower(plan->plan, &made->plan)) return status;
    *lowered = made.release();
    return NCAST_OK;
  });
}

ncast_status ncast_plan_verify(const ncast_plan* plan, const ncast_plan_verify_options* options, ncast_text** report) {
  constexpr const char* function = "ncast_plan_verify";
  if (ncast_status status = plan::check_plan(function, plan)) return status;
  ncast_plan_verify_options given = {};
  if (options != nullptr)
    if (ncast_status status = read_struct("options", *options, sizeof(size_t) + sizeof(uint32_t), &given))
      return status;
  return make_text(function, report,
                   [&] { return plan::verify::to_json(plan::verify::verify(plan->plan, {.depth = given.depth})); });
}

void ncast_plan_destroy(ncast_plan* plan) { delete plan; }

}  // extern "C"
