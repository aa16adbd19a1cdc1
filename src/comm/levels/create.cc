#include "comm/levels/create.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/host.h"
#include "bootstrap/tcp_rendezvous.h"
#include "bootstrap/unique_id.h"
#include "channel/peer/peers.h"
#include "comm/create.h"
#include "comm/levels/communicator.h"
#include "comm/split.h"
#include "comm/used_ids.h"
#include "environment/level_shape.h"
#include "executor/registry.h"
#include "select/options.h"
#include "status/error.h"

namespace narrowcast::comm {
namespace {

constexpr int most_ranks = environment::most_ranks_of_level;
// On GPUs with at least 108 SMs, the CTAs of a call between groups can run beside these.
constexpr uint32_t most_ctas_within = 36;
static_assert(most_ranks == channel::max_gpu_ranks &&
              environment::most_ranks_of_levels == bootstrap::Rendezvous::max_ranks);

// Of the ranks with this color.
ncast_status create_part(bootstrap::Rendezvous& all, int color, decltype(create)* create,
                         const ncast_comm_config& config, OwnedComm* part) {
  const Parent parent = {
      all.rank(), all.ranks(),
      [&](const void* mine, size_t bytes, void* theirs) { return all.all_gather(mine, bytes, theirs); },
      [&](std::span<const int>) { return all.check_failure(); }};
  ncast_comm* made = nullptr;
  const ncast_status status = split(parent, color, all.rank(), NCAST_OK, config, create, &made);
  part->reset(made);
  return status;
}

// Of the ranks of comms.all.
ncast_status create_from(LevelComms& comms, const ncast_comm_config& config, ncast_comm** comm) {
  select::Options options;
  if (ncast_status status = select::Options::of(config, &options)) return status;
  const bool is_on_gpu = config.backend == NCAST_BACKEND_CUDA;
  const uint64_t own_host = is_on_gpu ? bootstrap::own_machine() : bootstrap::own_host();
  bootstrap::Rendezvous& all = *comms.all;
  std::vector<uint64_t> hosts(static_cast<size_t>(all.ranks()));
  if (ncast_status status = all.all_gather(&own_host, sizeof own_host, hosts.data())) return status;
  const char* why_not = nullptr;
  if (const auto counts = environment::level_counts(hosts, &why_not)) {
    const int of_group = counts->of_group;
    const LevelShape shape{counts->groups, of_group, all.rank() / of_group, all.rank() % of_group};
    ncast_comm_config config_within = config;
    if (is_on_gpu) config_within.max_ctas = std::min(options.max_ctas, most_ctas_within);
    if (ncast_status status = create_part(all, shape.group, create_one_level, config_within, &comms.within))
      return status;
    const auto create_between = shape.groups <= most_ranks ? create_one_level : create;
    if (ncast_status status = create_part(all, shape.index, create_between, config, &comms.between)) return status;
    auto made = std::make_unique<Levels>(config.backend, shape, options.rounds_partial_sums, std::move(comms));
    if (ncast_status status = made->start(bootstrap::Limit{config.timeout_seconds})) {
      const std::string message = ncast_last_error();
      static_cast<void>(made->abort());  // see create_levels()
      return fail(status, "%s", message.c_str());
    }
    made->set_config(config);
    executor::add_communicator(made.get());
    *comm = made.release();
    return NCAST_OK;
  }
  if (is_on_gpu && all.ranks() > most_ranks)
    return fail(NCAST_UNSUPPORTED, "more than %d ranks form two levels, but %s", most_ranks, why_not);
  if (ncast_status status = create_part(all, 0, create_one_level, config, &comms.within)) return status;
  // No rank leaves before all have joined the new communicator.
  if (ncast_status status = all.barrier()) return status;
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
  const bootstrap::UniqueIdContent content = bootstrap::content_of(id);
  LevelComms comms;
  ncast_status status = bootstrap::TcpRendezvous::join(content.hub, content.world, rank, ranks,
                                                       bootstrap::Limit{config.create_timeout_seconds}, &comms.all);
  if (status == NCAST_OK) {
    mark_used(content.world);
    status = create_from(comms, config, comm);
  }
  if (status == NCAST_OK) return NCAST_OK;
  const std::string message = ncast_last_error();
  // Otherwise the destruction would wait for ranks that have not failed.
  if (comms.all != nullptr) comms.all->publish_failure(status, message.c_str());
  for (const OwnedComm* part : {&comms.within, &comms.between})
    if (*part != nullptr) static_cast<void>((*part)->abort());
  return fail(status, "ncast_comm_create: %s", message.c_str());
}

}  // namespace narrowcast::comm
