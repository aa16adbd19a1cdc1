#include "comm/launch.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "comm/arguments.h"
#include "comm/levels/communicator.h"
#include "comm/plan_use.h"
#include "executor/backend.h"
#include "executor/communicator.h"
#include "executor/launch_apart.h"
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

// The backend that launches a call, or `levels`.
constexpr auto levels = static_cast<ncast_backend>(0);
ncast_backend launcher_of(const Call& call) { return call.comm->has_levels() ? levels : call.comm->backend(); }

ncast_status launch(const char* function, const std::vector<Call>& calls) {
  if (ncast_status status = check_sends_to_self(calls)) return status;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0 && calls[i].comm == calls[i - 1].comm) continue;
    if (ncast_status status = calls[i].comm->check_error()) {
      const std::string cause = ncast_last_error();
      return fail(status, "the communicator has failed: %s", cause.c_str());
    }
  }
  if (ncast_status status = admit_calls(function, calls)) return status;
  // The CUDA backend first, because it only enqueues its calls, while those of the host may run here.
  const std::vector launchers = {NCAST_BACKEND_CUDA, NCAST_BACKEND_HOST, levels};
  return launch_apart(calls, launchers, launcher_of, [](ncast_backend launcher, const std::vector<Call>& those) {
    return launcher == levels ? launch_levels(those) : find_backend(launcher)->launch(those);
  });
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
  const std::vector<ncast_comm*> comms = communicators_of(group.calls);
  std::vector<CommUse> uses(comms.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    if (ncast_status status = uses[i].begin(function, comms[i])) return status;
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
