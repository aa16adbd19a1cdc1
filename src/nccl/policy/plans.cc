#include "nccl/policy/plans.h"

#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "nccl/libraries/engine.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// Kernels are generated for each type, so not for all of them.
constexpr ncast_dtype default_dtypes[] = {NCAST_FLOAT16, NCAST_BFLOAT16, NCAST_FLOAT32};

struct ReadPlan {
  const PlanFile* file;
  const ncast_plan* plan;
  ncast_plan_info info;
};

// Never freed: calls may come until the process ends.
const std::vector<ReadPlan>& read_plans() {
  static const auto& all = *[] {
    auto* const plans = new std::vector<ReadPlan>;
    const Engine& narrowcast = *engine();
    for (const PlanFile& file : settings().plan_files) {
      ncast_plan* plan = nullptr;
      ReadPlan read{&file, nullptr, {}};
      read.info.struct_bytes = sizeof read.info;
      if (narrowcast.ncast_plan_read(file.content.data(), file.content.size(), &plan) != NCAST_OK ||
          narrowcast.ncast_plan_describe(plan, &read.info) != NCAST_OK) {
        log(Level::warn, "%s: the plan is not used: %s. `narrowcast plan import` converts other formats",
            file.path.c_str(), narrowcast.ncast_last_error());
        continue;
      }
      read.plan = plan;
      plans->push_back(read);
    }
    return plans;
  }();
  return all;
}

// Logs why a file is not used, once for each reason.
void log_once(Level level, const PlanFile& file, const std::string& why) {
  static std::mutex& mutex = *new std::mutex;
  static auto& logged = *new std::set<std::pair<std::string, std::string>>;
  {
    const std::lock_guard lock(mutex);
    if (!logged.emplace(file.path, why).second) return;
  }
  log(level, "%s: the plan is not used: %s", file.path.c_str(), why.c_str());
}

}  // namespace

std::vector<PlanForCalls> plans_for(int ranks, std::string_view communicator) {
  std::vector<PlanForCalls> all;
  if (settings().plan_files.empty()) return all;
  for (const ReadPlan& read : read_plans()) {
    if (read.info.ranks != ranks) {
      log_once(
          Level::info, *read.file,
          "it is for " + std::to_string(read.info.ranks) + " ranks, and a communicator has " + std::to_string(ranks));
      continue;
    }
    for (const PlanRule& rule : read.file->rules) {
      if (!rule.suit(ranks, communicator)) continue;
      std::vector<ncast_dtype> dtypes = rule.dtypes;
      if (dtypes.empty()) dtypes.assign(std::begin(default_dtypes), std::end(default_dtypes));
      std::vector<ncast_redop> redops = rule.redops;
      if (redops.empty() || !reduces(read.info.operation)) redops = {NCAST_SUM};
      const ncast_plan_use use = {sizeof(ncast_plan_use), rule.always ? 1 : 0, rule.min_bytes, rule.max_bytes};
      for (const ncast_dtype dtype : dtypes)
        for (const ncast_redop redop : redops) all.push_back({read.file, read.plan, read.info.name, dtype, redop, use});
    }
  }
  return all;
}

void log_unused(const PlanForCalls& plan, const char* why) {
  // Several functions of the engine give the same reason, after their name.
  if (const char* const colon = std::strstr(why, ": ")) why = colon + 2;
  log_once(Level::warn, *plan.file, why);
}

}  // namespace narrowcast::nccl
