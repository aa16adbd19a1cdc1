// Creates and destroys all ranks of a communicator from one thread. The ranks wait for each other when they join and
// leave, so each one does this in its own thread.
#include <memory>
#include <string>

#include "bootstrap/interrupt.h"
#include "comm/arguments.h"
#include "comm/concurrent.h"
#include "comm/create.h"
#include "executor/backend.h"
#include "executor/communicator.h"
#include "executor/driven_ranks.h"
#include "narrowcast/comm.h"
#include "status/error.h"

namespace {

using narrowcast::fail;
using narrowcast::guarded;
using narrowcast::null_argument;
using narrowcast::comm::run_concurrently;
namespace bootstrap = narrowcast::bootstrap;

ncast_status check(const char* function, ncast_comm** comms, int ranks) {
  if (comms == nullptr) return null_argument(function, "comms");
  if (ranks < 1) return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d, not 1 or more", function, ranks);
  return NCAST_OK;
}

ncast_status destroy_all(ncast_comm** comms, int ranks) {
  const ncast_status status =
      run_concurrently(ranks, ranks, [comms](int rank) { return ncast_comm_destroy(comms[rank]); });
  for (int rank = 0; rank < ranks; ++rank) comms[rank] = nullptr;
  return status;
}

ncast_status create_all(ncast_comm** comms, int ranks, const int* devices, const ncast_comm_config* given_config) {
  for (int rank = 0; rank < ranks; ++rank) comms[rank] = nullptr;
  ncast_comm_config config;
  if (ncast_status status = narrowcast::comm::read_config(given_config, &config))
    return fail(status, "ncast_comm_create_all: %s", std::string(ncast_last_error()).c_str());
  const auto config_of = [&](int rank) {
    ncast_comm_config own = config;
    own.device = devices != nullptr ? devices[rank] : rank;
    return own;
  };
  // Check all configurations before any rank waits for the others.
  for (int rank = 0; rank < ranks; ++rank)
    if (ncast_status status = narrowcast::comm::check_config(ranks, rank, config_of(rank))) return status;
  ncast_unique_id id;
  if (ncast_status status = narrowcast::comm::make_id(narrowcast::bootstrap::Reach::local, false, 0, &id))
    return status;
  const ncast_status status = run_concurrently(ranks, ranks, [&](int rank) {
    if (bootstrap::is_interrupted()) return bootstrap::interrupted();
    const ncast_comm_config own = config_of(rank);
    return ncast_comm_create(&comms[rank], ranks, &id, rank, &own);
  });
  if (status == NCAST_OK) {
    const auto driven = std::make_shared<narrowcast::executor::DrivenRanks>(ranks);
    for (int rank = 0; rank < ranks; ++rank) comms[rank]->set_driven_ranks(driven);
    return NCAST_OK;
  }
  const std::string message = ncast_last_error();
  narrowcast::executor::close_hub(id, {});
  destroy_all(comms, ranks);
  return fail(status, "%s", message.c_str());
}

}  // namespace

extern "C" {

ncast_status ncast_comm_create_all(ncast_comm** comms, int ranks, const int* devices, const ncast_comm_config* config) {
  constexpr const char* function = "ncast_comm_create_all";
  return guarded(function, [&] {
    if (ncast_status status = check(function, comms, ranks)) return status;
    return create_all(comms, ranks, devices, config);
  });
}

ncast_status ncast_comm_destroy_all(ncast_comm** comms, int ranks) {
  constexpr const char* function = "ncast_comm_destroy_all";
  return guarded(function, [&] {
    if (ncast_status status = check(function, comms, ranks)) return status;
    return destroy_all(comms, ranks);
  });
}

}  // extern "C"
