// Plans on communicators.
#include <memory>
#include <string>

#include "comm/arguments.h"
#include "comm/launch.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "narrowcast/plan.h"
#include "plan/handle.h"
#include "plan/lower/lower.h"
#include "plan/steps.h"
#include "plan/verify/verify.h"
#include "status/error.h"

using namespace narrowcast;
using comm::check_arguments;
using executor::Call;
using executor::CommUse;

struct ncast_loaded_plan {
  ncast_comm* comm;
  Call call;  // without buffers, count and stream
  std::unique_ptr<executor::LoadedPlan> plan;
};

namespace {

// Puts the function's name in front of the message of an error.
ncast_status named(const char* function, ncast_status status) {
  if (status == NCAST_OK) return status;
  const std::string message = ncast_last_error();
  return fail(status, "%s: %s", function, message.c_str());
}

// No plan runs without a proof.
ncast_status prove(const plan::Plan& lowered, plan::verify::Report* proof) {
  *proof = plan::verify::verify(lowered);
  const plan::verify::Report& report = *proof;
  if (report.verdict == plan::verify::Verdict::proved) return NCAST_OK;
  const bool refuted = report.verdict == plan::verify::Verdict::refuted;
  return fail(refuted ? NCAST_INVALID_ARGUMENT : NCAST_UNSUPPORTED, "the plan '%s' is %s (%s): %s: %s",
              lowered.name.c_str(), refuted ? "wrong" : "not proved", plan::verify::name_of(report.finding.property),
              plan::verify::describe(report.finding.where).c_str(), report.finding.message.c_str());
}

}  // namespace

extern "C" {

ncast_status ncast_plan_load(ncast_comm* comm, const ncast_plan* plan, ncast_dtype dtype, ncast_redop op,
                             ncast_loaded_plan** loaded) {
  constexpr const char* function = "ncast_plan_load";
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (ncast_status status = plan::check_plan(function, plan)) return status;
    if (loaded == nullptr) return comm::null_argument(function, "loaded");
    if (ncast_dtype_bytes(dtype) == 0) return fail(NCAST_INVALID_ARGUMENT, "%s: dtype is %d", function, int{dtype});
    if (op < NCAST_SUM || op > NCAST_AVG) return fail(NCAST_INVALID_ARGUMENT, "%s: op is %d", function, int{op});
    if (!plan::has_plans(plan->plan.operation))
      return fail(NCAST_INVALID_ARGUMENT, "%s: plans cannot describe %s", function,
                  operation::name_of(plan->plan.operation));
    plan::Plan lowered;
    if (ncast_status status = plan::lower::lower(plan->plan, &lowered)) return named(function, status);
    plan::verify::Report proof;
    if (ncast_status status = prove(lowered, &proof)) return named(function, status);
    auto made = std::make_unique<ncast_loaded_plan>();
    made->comm = comm;
    made->call.operation = plan->plan.operation;
    made->call.dtype = dtype;
    made->call.redop = operation::reduces(plan->plan.operation) ? op : NCAST_SUM;
    made->call.peer = plan->plan.root;
    made->call.comm = comm;
    if (ncast_status status = comm->load_plan(lowered, proof, dtype, made->call.redop, &made->plan))
      return named(function, status);
    *loaded = made.release();
    return NCAST_OK;
  });
}

ncast_status ncast_loaded_plan_run(ncast_loaded_plan* loaded, const void* send, void* recv, uint64_t count,
                                   ncast_stream stream) {
  constexpr const char* function = "ncast_loaded_plan_run";
  return guarded(function, [&] {
    if (loaded == nullptr) return comm::null_argument(function, "loaded");
    CommUse use;
    if (ncast_status status = use.begin(function, loaded->comm)) return status;
    Call call = loaded->call;
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.stream = stream;
    if (ncast_status status = check_arguments(call)) return named(function, status);
    if (comm::is_group_open()) return fail(NCAST_INVALID_ARGUMENT, "%s: plans cannot run in a group", function);
    if (ncast_status status = call.comm->check_error()) return named(function, status);
    return named(function, loaded->plan->run(call));
  });
}

ncast_status ncast_loaded_plan_destroy(ncast_loaded_plan* loaded) {
  constexpr const char* function = "ncast_loaded_plan_destroy";
  return guarded(function, [&] {
    const std::unique_ptr<ncast_loaded_plan> owned(loaded);
    if (owned == nullptr) return NCAST_OK;
    CommUse use;
    if (use.begin(function, owned->comm) != NCAST_OK) return NCAST_OK;  // destroyed, and idle since
    return named(function, owned->plan->release());
  });
}

}  // extern "C"
