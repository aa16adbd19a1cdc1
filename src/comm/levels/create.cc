#include "comm/levels/create.h"

#include <string>
#include <utility>
#include <vector>

#include "bootstrap/host.h"
#include "channel/host/control_block.h"
#include "channel/peer/peers.h"
#include "comm/create.h"
#include "comm/levels/communicator.h"
#include "comm/split.h"
#include "environment/level_shape.h"
#include "executor/registry.h"
#include "select/options.h"
#include "status/error.h"

namespace narrowcast::comm {
namespace {

constexpr int most_ranks = environment::most_ranks_of_level;
static_assert(most_ranks == channel::max_gpu_ranks && environment::most_ranks_of_levels == channel::max_ranks);

// Of the communicators that only the levels use.
ncast_comm_config config_of_all(const ncast_comm_config& config) {
  ncast_comm_config of_all;
  ncast_comm_config_init(&of_all);
  of_all.timeout_seconds = config.timeout_seconds;
  of_all.create_timeout_seconds = config.create_timeout_seconds;
  of_all.cost_model = "";
  return of_all;
}

ncast_status split_all(ncast_comm* all, int color, const ncast_comm_config& config, OwnedComm* part) {
  ncast_comm* made = nullptr;
  const ncast_status status = split_into_one_level(all, color, all->rank(), &config, &made);
  part->reset(made);
  return status;
}

ncast_status create_from(LevelComms& comms, const ncast_comm_config& config, ncast_comm** comm);

// Of the ranks of comms.all.
ncast_status create_over(LevelComms comms, const ncast_comm_config& config, ncast_comm** comm) {
  const ncast_status status = create_from(comms, config, comm);
  if (status == NCAST_OK) return NCAST_OK;
  const std::string message = ncast_last_error();
  // Otherwise the destruction would wait for ranks that have not failed.
  for (const OwnedComm* part : {&comms.all, &comms.within, &comms.between})
    if (*part != nullptr) static_cast<void>((*part)->abort());
  return fail(status, "%s", message.c_str());
}

ncast_status create_between(ncast_comm* all, const LevelShape& shape, const ncast_comm_config& config,
                            OwnedComm* between) {
  if (shape.groups <= most_ranks) return split_all(all, shape.index, config, between);
  LevelComms comms;
  ncast_comm* made = nullptr;
  if (ncast_status status = split_all(all, shape.index, config_of_all(config), &comms.all)) return status;
  const ncast_status status = create_over(std::move(comms), config, &made);
  between->reset(made);
  return status;
}

ncast_status create_from(LevelComms& comms, const ncast_comm_config& config, ncast_comm** comm) {
  select::Options options;
  if (ncast_status status = select::Options::of(config, &options)) return status;
  const bool is_on_gpu = config.backend == NCAST_BACKEND_CUDA;
  const uint64_t own_host = is_on_gpu ? bootstrap::own_machine() : bootstrap::own_host();
  ncast_comm* const all = comms.all.get();
  std::vector<uint64_t> hosts(static_cast<size_t>(all->ranks()));
  if (ncast_status status = all->exchange(&own_host, sizeof own_host, hosts.data())) return status;
  const char* why_not = nullptr;
  if (const auto counts = environment::level_counts(hosts, &why_not)) {
    const int of_group = counts->of_group;
    const LevelShape shape{counts->groups, of_group, all->rank() / of_group, all->rank() % of_group};
    if (ncast_status status = split_all(all, shape.group, config, &comms.within)) return status;
    if (ncast_status status = create_between(all, shape, config, &comms.between)) return status;
    auto made = std::make_unique<Levels>(config.backend, shape, options.rounds_partial_sums, std::move(comms));
    if (ncast_status status = made->start()) {
      const std::string message = ncast_last_error();
      static_cast<void>(made->abort());  // see create_over()
      return fail(status, "%s", message.c_str());
    }
    made->set_config(config);
    executor::add_communicator(made.get());
    *comm = made.release();
    return NCAST_OK;
  }
  if (is_on_gpu && all->ranks() > most_ranks)
    return fail(NCAST_UNSUPPORTED, "more than %d ranks form two levels, but %s", most_ranks, why_not);
  if (ncast_status status = split_all(all, 0, config, &comms.within)) return status;
  // No rank leaves before all have joined the new communicator.
  if (ncast_status status = all->exchange(&own_host, sizeof own_host, hosts.data())) return status;
  *comm = comms.within.release();
  return NCAST_OK;
}

}  // namespace

ncast_status wants_levels(int ranks, const ncast_comm_config& config, bool* wants) {
  select::Options options;
  if (ncast_status status = select::Options::of(config, &options)) return status;
  *wants = options.two_levels || (config.backend == NCAST_BACKEND_CUDA && ranks > most_ranks);
  return NCAST_OK;
}

ncast_status create_levels(ncast_comm** comm, int ranks, const ncast_unique_id& id, int rank,
                           const ncast_comm_config& config) {
  const ncast_comm_config of_all = config_of_all(config);
  ncast_comm* all = nullptr;
  ncast_status status = create_one_level(&all, ranks, &id, rank, &of_all);
  if (status == NCAST_OK) status = create_over({.all = OwnedComm(all), .within = {}, .between = {}}, config, comm);
  if (status == NCAST_OK) return NCAST_OK;
  const std::string message = ncast_last_error();
  return fail(status, "ncast_comm_create: %s", message.c_str());
}

}  // namespace narrowcast::comm
