// ncast_plan_simulate, and the part of ncast_plan_schedule that all executors share.
#include "plan/schedule/api.h"

#include <cmath>
#include <cstring>

#include "nlohmann/json.hpp"
#include "plan/budget.h"
#include "plan/handle.h"
#include "plan/schedule/candidates.h"
#include "status/sized_struct.h"

using namespace narrowcast;
using plan::simulate::Machine;

namespace {

using Json = nlohmann::ordered_json;

double rounded(double microseconds) { return std::round(microseconds * 1e4) / 1e4; }

ncast_status read_arguments(const char* function, const char* machine_json, const ncast_plan_simulation* given,
                            Machine* machine, ncast_plan_simulation* values) {
  if (machine_json == nullptr || given == nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function,
                machine_json == nullptr ? "machine_json" : "simulation");
  *values = {};
  if (ncast_status status =
          read_struct("simulation", *given, offsetof(ncast_plan_simulation, timeline) + sizeof(int), values))
    return status;
  if (values->ratio < 0 || !std::isfinite(values->ratio))
    return fail(NCAST_INVALID_ARGUMENT, "%s: ratio is %g, not a positive number", function, values->ratio);
  return plan::simulate::read_machine({machine_json, std::strlen(machine_json)}, machine);
}

// Simulations do not check indices, and assume that the plan completes.
ncast_status check_proof(const char* function, const ncast_plan* plan) {
  if (ncast_status status = plan::check_plan(function, plan)) return status;
  const plan::verify::Report& report = plan->report();
  if (report.verdict == plan::verify::Verdict::proved) return NCAST_OK;
  const bool refuted = report.verdict == plan::verify::Verdict::refuted;
  return fail(refuted ? NCAST_INVALID_ARGUMENT : NCAST_UNSUPPORTED, "%s: the plan is not proved: %s", function,
              report.finding.message.c_str());
}

plan::simulate::Options options_of(const ncast_plan_simulation& values) {
  plan::simulate::Options options;
  options.piece_bytes = values.piece_bytes;
  if (values.ratio != 0) options.ratio = values.ratio;
  options.records_timeline = values.timeline != 0;
  return options;
}

std::string report_of(const plan::simulate::Prediction& prediction, bool with_timeline) {
  Json groups = Json::array();
  for (const plan::simulate::Activity& activity : prediction.groups)
    groups.push_back({{"rank", activity.rank}, {"group", activity.group}, {"busy_us", rounded(activity.busy_us)}});
  Json report = {{"microseconds", rounded(prediction.microseconds)},
                 {"repeated_us", rounded(prediction.repeated_us)},
                 {"batches", prediction.batches},
                 {"groups", std::move(groups)},
                 {"sent_bytes", prediction.sent_bytes}};
  if (with_timeline) {
    Json timeline = Json::array();
    for (const plan::simulate::Interval& one : prediction.timeline)
      timeline.push_back({one.rank, one.group, one.step, one.batch, rounded(one.begin), rounded(one.end)});
    report["timeline"] = std::move(timeline);
  }
  return report.dump();
}

Json json_of(const plan::schedule::Side& side) {
  return {
      {"groups", side.groups}, {"microseconds", rounded(side.microseconds)}, {"most_idle", rounded(side.most_idle)}};
}

}  // namespace

extern "C" {

ncast_status ncast_plan_simulate(const ncast_plan* lowered, const char* machine_json,
                                 const ncast_plan_simulation* simulation, ncast_text** report) {
  constexpr const char* function = "ncast_plan_simulate";
  return guarded(function, [&] {
    if (ncast_status status = check_proof(function, lowered)) return status;
    Machine machine;
    ncast_plan_simulation values;
    if (ncast_status status = read_arguments(function, machine_json, simulation, &machine, &values)) return status;
    plan::simulate::Options options = options_of(values);
    options.extrapolates = true;
    options.repeats = true;
    plan::simulate::Prediction prediction;
    const auto simulate = [&] { return plan::simulate::simulate(lowered->plan, machine, options, &prediction); };
    if (ncast_status status = plan::within_budget(simulate)) return status;
    return make_text(function, report, [&] { return report_of(prediction, values.timeline != 0); });
  });
}

}  // extern "C"

ncast_status plan::schedule::schedule_plan(const ncast_plan* lowered, const char* machine_json,
                                           const ncast_plan_simulation* simulation, const Kernels& kernels,
                                           ncast_plan** scheduled, ncast_text** report) {
  constexpr const char* function = "ncast_plan_schedule";
  if (scheduled == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: scheduled is NULL", function);
  return guarded(function, [&] {
    if (ncast_status status = check_proof(function, lowered)) return status;
    const auto check_steps = [&] {
      check_limit("steps to schedule:", steps_of(lowered->plan), max_scheduled_steps);
      return NCAST_OK;
    };
    if (ncast_status status = within_budget(check_steps)) return status;
    Machine machine;
    ncast_plan_simulation values;
    if (ncast_status status = read_arguments(function, machine_json, simulation, &machine, &values)) return status;
    plan::schedule::Result result;
    plan::schedule::Options options{options_of(values), values.max_groups};
    if (values.max_instances != 0) options.max_instances = values.max_instances;
    if (values.any_executor == 0) options.kernels = kernels;
    // With several micro-batches, the warps of a group hide the waits of each other, so that fewer groups could merge
    // without becoming slower.
    options.simulation.max_batches = 1;
    if (ncast_status status = plan::schedule::schedule(lowered->plan, machine, options, &result)) return status;
    if (ncast_status status = make_text(function, report, [&] {
          return Json{{"before", json_of(result.before)}, {"after", json_of(result.after)}}.dump();
        }))
      return status;
    *scheduled = new ncast_plan(std::move(result.plan));
    return NCAST_OK;
  });
}
