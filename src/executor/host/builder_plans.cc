#include "executor/host/builder_plans.h"

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/lower/lower.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

using plan::builders::Request;

ncast_status prove(std::string_view builder, const Request& request, std::shared_ptr<const ProvedPlan>* proved) {
  plan::Plan built, lowered;
  plan::verify::Report proof;
  if (ncast_status status = plan::builders::build(builder, request, &built)) return status;
  if (ncast_status status = plan::lower::lower(built, &lowered, &proof)) return status;
  if (proof.verdict != plan::verify::Verdict::proved)
    return fail(NCAST_INTERNAL, "the plan '%s' is not proved: %s", built.name.c_str(), proof.finding.message.c_str());
  *proved = std::make_shared<const ProvedPlan>(std::move(lowered), proof);
  return NCAST_OK;
}

// A plan that some ranks may use.
struct Shared {
  std::mutex mutex;  // held while the plan is proved, so that other ranks wait for it
  std::weak_ptr<const ProvedPlan> plan;
};

// Builder and request.
using Key = std::tuple<std::string, plan::Operation, int, int, ncast_codec, uint32_t, int, std::vector<int>, bool,
                       std::optional<ncast_codec>, std::optional<ncast_codec>>;

Shared& shared_of(const Key& key) {
  static std::mutex mutex;
  static std::map<Key, Shared> all;
  const std::lock_guard lock(mutex);
  return all[key];
}

}  // namespace

ncast_status find_proved(std::string_view builder, const Request& request, std::shared_ptr<const ProvedPlan>* proved) {
  Shared& shared = shared_of({std::string(builder), request.operation, request.ranks, request.root, request.codec,
                              request.depth, request.ranks_per_node, request.hosts, request.partial_sums,
                              request.codec_within, request.result_codec});
  const std::lock_guard lock(shared.mutex);
  *proved = shared.plan.lock();
  if (*proved != nullptr) return NCAST_OK;
  if (ncast_status status = prove(builder, request, proved)) return status;
  shared.plan = *proved;
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
