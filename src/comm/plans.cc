// Plans on communicators.
#include <memory>
#include <string>

#include "comm/arguments.h"
#include "comm/launch.h"
#include "comm/plan_use.h"
#include "executor/communicator.h"
#include "executor/plan_agreement.h"
#include "executor/registry.h"
#include "narrowcast/plan.h"
#include "plan/handle.h"
#include "plan/json/json.h"
#include "plan/steps.h"
#include "status/error.h"
#include "status/fnv1a.h"

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
  operation::Overlap overlap = operation::Overlap::SEPARATE;  // of send and recv
  select::PlanCandidate candidate;
  const char* why_not = nullptr;  // the calls of the communicator cannot run it; NULL: they can
};

namespace {

// Puts the function's name in front of the message of an error.
ncast_status named(const char* function, ncast_status status) {
  if (status == NCAST_OK) return status;
  const std::string message = ncast_last_error();
  return fail(status, "%s: %s", function, message.c_str());
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
  // No plan runs without a proof.
  const plan::Proof& proof = plan->proof();
  if (proof.status != NCAST_OK) return fail(proof.status, "%s", proof.message.c_str());
  loaded->comm = comm;
  loaded->comm_number = comm->number();
  loaded->call.operation = operation;
  loaded->call.dtype = dtype;
  loaded->call.redop = operation::reduces(operation) ? op : NCAST_SUM;
  loaded->call.peer = plan->plan.root;
  loaded->call.comm = comm;
  // Such a plan of all_to_all is proved in place, although the operation is not defined so.
  const bool is_in_place = plan->plan.in_place == plan::InPlace::yes;
  loaded->overlap = is_in_place ? operation::Overlap::IN_PLACE : operation::describe(operation).overlap;
  loaded->candidate = comm::candidate_of(*plan, dtype, op);
  if (ncast_status status =
          comm::check_codec("the plan", operation, dtype, op, loaded->candidate.codec.value_or(NCAST_CODEC_RAW)))
    return status;
  loaded->why_not = comm::why_not_for_calls(proof.lowered, comm->backend());
  *hash = fnv1a(plan::json::write(proof.lowered) + std::to_string(dtype) + "," + std::to_string(loaded->call.redop));
  return comm->prepare_plan(proof.lowered, proof.report, dtype, loaded->call.redop, &loaded->plan);
}

}  // namespace

extern "C" {

ncast_status ncast_plan_load(ncast_comm* comm, const ncast_plan* plan, ncast_dtype dtype, ncast_redop op,
                             ncast_loaded_plan** loaded) {
  constexpr const char* function = "ncast_plan_load";
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (ncast_status status = comm->check_alone()) return named(function, status);
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
    if (ncast_status status = comm->check_alone()) return named(function, status);
    return named(function, executor::decline_plan(*comm, reason == nullptr ? "no reason given" : reason));
  });
}

ncast_status ncast_loaded_plan_use(ncast_loaded_plan* loaded, const ncast_plan_use* use) {
  constexpr const char* function = "ncast_loaded_plan_use";
  return guarded(function, [&] {
    if (loaded == nullptr) return narrowcast::null_argument(function, "loaded");
    CommUse in_use;
    if (ncast_status status = in_use.begin_same(function, loaded->comm, loaded->comm_number)) return status;
    if (loaded->why_not != nullptr) return fail(NCAST_UNSUPPORTED, "%s: %s", function, loaded->why_not);
    select::PlanCandidate candidate = loaded->candidate;
    if (ncast_status status = comm::apply_use(use, &candidate)) return named(function, status);
    if (candidate.loaded == 0) candidate.loaded = loaded->comm->plans_in_use().add(loaded->plan.get());
    loaded->candidate.loaded = candidate.loaded;
    loaded->comm->decider()->remove_plan(candidate.loaded);  // an earlier use
    loaded->comm->decider()->add_plan(std::move(candidate));
    return NCAST_OK;
  });
}

ncast_status ncast_loaded_plan_run(ncast_loaded_plan* loaded, const void* send, void* recv, uint64_t count,
                                   ncast_stream stream) {
  constexpr const char* function = "ncast_loaded_plan_run";
  return guarded(function, [&] {
    if (loaded == nullptr) return narrowcast::null_argument(function, "loaded");
    CommUse use;
    if (ncast_status status = use.begin_same(function, loaded->comm, loaded->comm_number)) return status;
    Call call = loaded->call;
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.stream = stream;
    if (ncast_status status = check_arguments(call, loaded->overlap)) return named(function, status);
    if (comm::is_group_open()) return fail(NCAST_INVALID_ARGUMENT, "%s: plans cannot run in a group", function);
    if (ncast_status status = call.comm->check_error()) return named(function, status);
    if (ncast_status status = executor::admit_calls(function, {&call, 1})) return status;
    return named(function, loaded->plan->run(call));
  });
}

ncast_status ncast_loaded_plan_destroy(ncast_loaded_plan* loaded) {
  constexpr const char* function = "ncast_loaded_plan_destroy";
  return guarded(function, [&] {
    if (loaded == nullptr) return NCAST_OK;
    if (comm::is_in_open_group(loaded->plan.get()))
      return fail(NCAST_INVALID_ARGUMENT, "%s: the open group of this thread has calls that run the plan", function);
    const std::unique_ptr<ncast_loaded_plan> owned(loaded);
    CommUse use;
    if (use.begin_same(function, owned->comm, owned->comm_number) != NCAST_OK)
      return NCAST_OK;  // destroyed, and idle since
    if (owned->candidate.loaded != 0) {
      owned->comm->decider()->remove_plan(owned->candidate.loaded);
      owned->comm->plans_in_use().remove(owned->candidate.loaded);
    }
    return named(function, owned->plan->release());
  });
}

}  // extern "C"
