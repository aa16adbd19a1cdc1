// Plans on communicators.
#include <memory>
#include <string>

#include "comm/arguments.h"
#include "comm/launch.h"
#include "executor/communicator.h"
#include "executor/plan_agreement.h"
#include "executor/registry.h"
#include "narrowcast/plan.h"
#include "plan/handle.h"
#include "plan/json/json.h"
#include "plan/lower/lower.h"
#include "plan/steps.h"
#include "plan/verify/verify.h"
#include "status/error.h"

using namespace narrowcast;
using comm::check_arguments;
using executor::Call;
using executor::CommUse;
using executor::PlanReadiness;
using operation::Operation;

struct ncast_loaded_plan {
  ncast_comm* comm;
  uint64_t comm_number;
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

// FNV-1a.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3u;
  return hash;
}

// What a rank does alone before it agrees with the others: checks the arguments, lowers and proves the plan, and lets
// the backend prepare it.
ncast_status prepare(ncast_comm* comm, const ncast_plan* plan, ncast_dtype dtype, ncast_redop op,
                     ncast_loaded_plan* loaded, uint64_t* hash) {
  if (plan == nullptr) return fail(NCAST_INVALID_ARGUMENT, "plan is NULL");
  if (ncast_dtype_bytes(dtype) == 0) return fail(NCAST_INVALID_ARGUMENT, "dtype is %d", int{dtype});
  if (op < NCAST_SUM || op > NCAST_AVG) return fail(NCAST_INVALID_ARGUMENT, "op is %d", int{op});
  const Operation operation = plan->plan.operation;
  if (!plan::has_plans(operation))
    return fail(NCAST_INVALID_ARGUMENT, "plans cannot describe %s", operation::name_of(operation));
  if (plan->plan.rank_count() != comm->ranks())
    return fail(NCAST_INVALID_ARGUMENT, "the plan has %d ranks, and the communicator %d", plan->plan.rank_count(),
                comm->ranks());
  plan::Plan lowered;
  if (ncast_status status = plan::lower::lower(plan->plan, &lowered)) return status;
  plan::verify::Report proof;
  if (ncast_status status = prove(lowered, &proof)) return status;
  loaded->comm = comm;
  loaded->comm_number = comm->number();
  loaded->call.operation = operation;
  loaded->call.dtype = dtype;
  loaded->call.redop = operation::reduces(operation) ? op : NCAST_SUM;
  loaded->call.peer = plan->plan.root;
  loaded->call.comm = comm;
  *hash = hash_of(plan::json::write(lowered) + std::to_string(dtype) + "," + std::to_string(loaded->call.redop));
  return comm->prepare_plan(lowered, proof, dtype, loaded->call.redop, &loaded->plan);
}

}  // namespace

extern "C" {

ncast_status ncast_plan_load(ncast_comm* comm, const ncast_plan* plan, ncast_dtype dtype, ncast_redop op,
                             ncast_loaded_plan** loaded) {
  constexpr const char* function = "ncast_plan_load";
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    auto made = std::make_unique<ncast_loaded_plan>();
    uint64_t hash = 0;
    // A rank that cannot load the plan still informs the others, which would wait for it.
    const ncast_status prepared = guarded(function, [&] {
      if (loaded == nullptr) return fail(NCAST_INVALID_ARGUMENT, "loaded is NULL");
      return prepare(comm, plan, dtype, op, made.get(), &hash);
    });
    if (ncast_status status = executor::agree_on_plan(*comm, PlanReadiness::of(hash, prepared)))
      return named(function, status);
    if (ncast_status status = made->plan->load()) return named(function, status);
    *loaded = made.release();
    return NCAST_OK;
  });
}

ncast_status ncast_plan_decline(ncast_comm* comm, const char* reason) {
  constexpr const char* function = "ncast_plan_decline";
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    return named(function, executor::decline_plan(*comm, reason == nullptr ? "no reason given" : reason));
  });
}

ncast_status ncast_loaded_plan_run(ncast_loaded_plan* loaded, const void* send, void* recv, uint64_t count,
                                   ncast_stream stream) {
  constexpr const char* function = "ncast_loaded_plan_run";
  return guarded(function, [&] {
    if (loaded == nullptr) return comm::null_argument(function, "loaded");
    CommUse use;
    if (ncast_status status = use.begin_same(function, loaded->comm, loaded->comm_number)) return status;
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
    if (use.begin_same(function, owned->comm, owned->comm_number) != NCAST_OK)
      return NCAST_OK;  // destroyed, and idle since
    return named(function, owned->plan->release());
  });
}

}  // extern "C"
