// The functions by which users choose between plans.
#include "comm/plan_selector.h"

#include <mutex>
#include <utility>
#include <vector>

#include "comm/arguments.h"
#include "executor/registry.h"
#include "narrowcast/plan.h"
#include "status/error.h"

namespace narrowcast::comm {
namespace {

struct Default {
  std::mutex mutex;
  ncast_plan_selector selector = nullptr;
  void* context = nullptr;
};

Default& default_selector() {
  static Default& the = *new Default;  // never freed: communicators may be created until the process ends
  return the;
}

select::PlanSelector wrapped(ncast_plan_selector selector, void* context) {
  static_assert(select::Selected::built_in == NCAST_PLAN_BUILT_IN && select::Selected::by_cost == NCAST_PLAN_BY_COST);
  static_assert(int{NCAST_PLACEMENT_SEPARATE} == static_cast<int>(select::Placement::separate) &&
                int{NCAST_PLACEMENT_IN_PLACE} == static_cast<int>(select::Placement::in_place));
  if (selector == nullptr) return {};
  return [=](const select::CallShape& shape, std::span<const select::PlanCandidate* const> plans) {
    const ncast_plan_call call = {.struct_bytes = sizeof(ncast_plan_call),
                                  .operation = static_cast<ncast_operation>(shape.operation),
                                  .count = shape.bytes / ncast_dtype_bytes(shape.dtype),
                                  .dtype = shape.dtype,
                                  .op = shape.redop,
                                  .root = shape.root,
                                  .codec = shape.codec,
                                  .ranks = shape.ranks,
                                  .placement = static_cast<int>(shape.placement),
                                  .result_codec = nullptr};
    std::vector<const char*> names;
    names.reserve(plans.size());
    for (const select::PlanCandidate* const plan : plans) names.push_back(plan->plan.c_str());
    return selector(context, &call, names.data(), static_cast<int>(names.size()));
  };
}

}  // namespace

void use_default_selector(const ncast_comm& comm) {
  Default& the = default_selector();
  const std::lock_guard lock(the.mutex);
  if (the.selector != nullptr) comm.decider()->set_selector(wrapped(the.selector, the.context));
}

}  // namespace narrowcast::comm

using namespace narrowcast;

extern "C" {

void ncast_set_plan_selector(ncast_plan_selector selector, void* context) {
  comm::Default& the = comm::default_selector();
  const std::lock_guard lock(the.mutex);
  the.selector = selector;
  the.context = context;
}

ncast_status ncast_comm_set_plan_selector(ncast_comm* comm, ncast_plan_selector selector, void* context) {
  constexpr const char* function = "ncast_comm_set_plan_selector";
  return guarded(function, [&] {
    executor::CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (ncast_status status = comm::check_one_level(function, *comm)) return status;
    comm->decider()->set_selector(comm::wrapped(selector, context));
    return NCAST_OK;
  });
}

}  // extern "C"
