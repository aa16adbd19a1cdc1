#include "comm/launch.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "comm/arguments.h"
#include "comm/levels/communicator.h"
#include "comm/plan_use.h"
#include "executor/backend.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "status/error.h"

namespace narrowcast::comm {

using namespace executor;

namespace {

struct Group {
  int depth = 0;
  std::vector<Call> calls;
  ncast_status error = NCAST_OK;
  std::string message;
};

thread_local Group open_group;

ncast_status launch(const char* function, const std::vector<Call>& calls) {
  if (ncast_status status = check_sends_to_self(calls)) return status;
  for (const Call& call : calls) {
    if (ncast_status status = call.comm->check_error()) {
      const std::string cause = ncast_last_error();
      return fail(status, "the communicator has failed: %s", cause.c_str());
    }
  }
  if (ncast_status status = admit_calls(function, calls)) return status;
  const auto runs_on = [](ncast_backend backend) {
    return [backend](const Call& call) { return call.comm->backend() == backend && !call.comm->has_levels(); };
  };
  const ncast_backend first = calls[0].comm->backend();
  if (std::ranges::all_of(calls, runs_on(first))) return find_backend(first)->launch(calls);
  // Launch all even if some fail, because other ranks may be waiting for the calls.
  ncast_status first_error = NCAST_OK;
  std::string message;
  const auto launch_those = [&](const auto& belong, const auto& launch_calls) {
    std::vector<Call> those;
    std::ranges::copy_if(calls, std::back_inserter(those), belong);
    if (those.empty()) return;
    const ncast_status status = launch_calls(those);
    if (status == NCAST_OK || first_error != NCAST_OK) return;
    first_error = status;
    message = ncast_last_error();
  };
  // The CUDA backend first, because it only enqueues its calls, while those of the host may run here.
  for (const ncast_backend backend : {NCAST_BACKEND_CUDA, NCAST_BACKEND_HOST})
    launch_those(runs_on(backend), [&](const auto& those) { return find_backend(backend)->launch(those); });
  launch_those([](const Call& call) { return call.comm->has_levels(); }, launch_levels);
  return first_error == NCAST_OK ? NCAST_OK : fail(first_error, "%s", message.c_str());
}

}  // namespace

ncast_status submit(const Call& given) {
  Call call = given;
  call.result_codec = other_codec(call.codec, call.result_codec);
  if (!call.comm->has_levels()) decide(&call);
  if (open_group.depth > 0) {
    open_group.calls.push_back(call);
    return NCAST_OK;
  }
  return launch(function_of(call), {call});
}

ncast_status reject(ncast_status status) {
  if (open_group.depth > 0 && open_group.error == NCAST_OK) {
    open_group.error = status;
    open_group.message = ncast_last_error();
  }
  return status;
}

ncast_status start_group() {
  ++open_group.depth;
  return NCAST_OK;
}

ncast_status end_group(const char* function, bool is_complete) {
  if (open_group.depth == 0) return fail(NCAST_INVALID_ARGUMENT, "%s: no group is open on this thread", function);
  if (--open_group.depth > 0) return NCAST_OK;
  Group group = std::exchange(open_group, {});
  if (group.error != NCAST_OK) {
    return fail(group.error, "%s: no call of the group was launched, because one was rejected: %s", function,
                group.message.c_str());
  }
  std::vector<CommUse> uses(group.calls.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    if (ncast_status status = uses[i].begin(function, group.calls[i].comm)) return status;
  }
  if (!is_complete) std::erase_if(group.calls, [](const Call& call) { return call.comm->driven_ranks() != nullptr; });
  return group.calls.empty() ? NCAST_OK : launch(function, group.calls);
}

bool is_group_open() { return open_group.depth > 0; }

bool is_in_open_group(const ncast_comm* comm) {
  return std::ranges::find(open_group.calls, comm, &Call::comm) != open_group.calls.end();
}

bool is_in_open_group(const executor::LoadedPlan* plan) {
  return std::ranges::find(open_group.calls, plan, &Call::chosen) != open_group.calls.end();
}

}  // namespace narrowcast::comm
