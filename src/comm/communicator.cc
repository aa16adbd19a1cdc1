// The functions of an existing communicator, except for its operations.
#include "executor/communicator.h"

#include <cstdio>

#include "comm/arguments.h"
#include "comm/launch.h"
#include "executor/registry.h"
#include "narrowcast/comm.h"
#include "status/error.h"
#include "status/sized_struct.h"

using narrowcast::fail;
using narrowcast::fill_struct;
using narrowcast::guarded;
using narrowcast::null_argument;
using namespace narrowcast::comm;
using namespace narrowcast::executor;

namespace {

ncast_status report_error(const char* function, ncast_comm* comm, ncast_status (ncast_comm::*error)(), char* message,
                          size_t message_capacity) {
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    const ncast_status status = (comm->*error)();
    if (message != nullptr && message_capacity > 0) {
      std::snprintf(message, message_capacity, "%s", status == NCAST_OK ? "" : ncast_last_error());
    }
    return status;
  });
}

}  // namespace

extern "C" {

ncast_status ncast_comm_destroy(ncast_comm* comm) {
  return guarded("ncast_comm_destroy", [&] {
    if (comm == nullptr) return NCAST_OK;
    if (is_in_open_group(comm)) {
      return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_destroy: the open group of this thread has calls on comm");
    }
    return destroy_communicator("ncast_comm_destroy", comm);
  });
}

ncast_status ncast_comm_abort(ncast_comm* comm) {
  return guarded("ncast_comm_abort", [&] {
    CommUse use;
    if (ncast_status status = use.begin_abort("ncast_comm_abort", comm)) return status;
    return comm->abort();
  });
}

ncast_status ncast_comm_async_error(ncast_comm* comm, char* message, size_t message_capacity) {
  return report_error("ncast_comm_async_error", comm, &ncast_comm::check_error, message, message_capacity);
}

ncast_status ncast_comm_call_error(ncast_comm* comm, char* message, size_t message_capacity) {
  return report_error("ncast_comm_call_error", comm, &ncast_comm::call_error, message, message_capacity);
}

ncast_status ncast_comm_rank(const ncast_comm* comm, int* rank) {
  return guarded("ncast_comm_rank", [&] {
    CommUse use;
    if (ncast_status status = use.begin("ncast_comm_rank", comm)) return status;
    if (rank == nullptr) return null_argument("ncast_comm_rank", "rank");
    *rank = comm->rank();
    return NCAST_OK;
  });
}

ncast_status ncast_comm_ranks(const ncast_comm* comm, int* ranks) {
  return guarded("ncast_comm_ranks", [&] {
    CommUse use;
    if (ncast_status status = use.begin("ncast_comm_ranks", comm)) return status;
    if (ranks == nullptr) return null_argument("ncast_comm_ranks", "ranks");
    *ranks = comm->ranks();
    return NCAST_OK;
  });
}

ncast_status ncast_comm_get_counters(const ncast_comm* comm, ncast_comm_counters* counters) {
  return guarded("ncast_comm_get_counters", [&] {
    CommUse use;
    if (ncast_status status = use.begin("ncast_comm_get_counters", comm)) return status;
    const Counters all = comm->counters();
    ncast_comm_counters totals = {};
    totals.scratch_bytes = all.scratch_bytes;
    totals.network_bytes = all.network_bytes;
    for (const ncast_operation_counters& one : all.operations) {
      totals.calls += one.calls;
      totals.raw_bytes += one.raw_bytes;
      totals.wire_bytes += one.wire_bytes;
    }
    return fill_struct("ncast_comm_get_counters", "counters", totals, counters);
  });
}

ncast_status ncast_comm_get_operation_counters(const ncast_comm* comm, ncast_operation_counters* counters,
                                               int capacity) {
  constexpr const char* function = "ncast_comm_get_operation_counters";
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (capacity < 0) return fail(NCAST_INVALID_ARGUMENT, "%s: capacity is %d, not 0 or more", function, capacity);
    if (counters == nullptr && capacity > 0) return null_argument(function, "counters");
    const Counters all = comm->counters();
    for (size_t i = 0; i < static_cast<size_t>(capacity); ++i)
      counters[i] = i < all.operations.size() ? all.operations[i] : ncast_operation_counters{};
    return NCAST_OK;
  });
}

}  // extern "C"
