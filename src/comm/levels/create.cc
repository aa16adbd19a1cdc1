#include "comm/levels/create.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bootstrap/host.h"
#include "bootstrap/shared_settings.h"
#include "channel/peer/peers.h"
#include "comm/create.h"
#include "comm/levels/communicator.h"
#include "comm/split.h"
#include "select/options.h"
#include "status/error.h"

namespace narrowcast::comm {
namespace {

using Setting = environment::Levels;

constexpr int most_ranks = environment::most_ranks_of_level;
constexpr int least_ranks = 4;  // two groups of two
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

// From comms.all.
ncast_status create_from(LevelComms& comms, const LevelShape& shape, const ncast_comm_config& config,
                         ncast_comm** comm) {
  select::Options options;
  if (ncast_status status = select::Options::of(config, &options)) return status;
  bootstrap::Rendezvous& all = *comms.all;
  ncast_comm_config config_within = config;
  if (config.backend == NCAST_BACKEND_CUDA) config_within.max_ctas = std::min(options.max_ctas, most_ctas_within);
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
  *comm = made.release();
  return NCAST_OK;
}

bool share_a_process(std::span<const RankPlace> ranks) {
  std::set<std::tuple<uint64_t, uint64_t, int64_t, uint64_t>> processes;
  for (const auto& [host, process] : ranks)
    processes.emplace(host, process.pid_namespace, process.pid, process.start_time);
  return processes.size() != ranks.size();
}

}  // namespace

bool may_need_levels(int ranks, const ncast_comm_config& config) {
  select::Options options;
  if (ranks <= most_ranks || select::Options::of(config, &options) != NCAST_OK) return false;
  const bool is_on_gpu = config.backend == NCAST_BACKEND_CUDA;
  return options.levels == Setting::two || (is_on_gpu && options.levels == Setting::automatic);
}

std::optional<environment::LevelCounts> choose_levels(Setting setting, ncast_backend backend,
                                                      std::span<const RankPlace> ranks, const char** why_not) {
  *why_not = "NARROWCAST_LEVELS is not 2";
  if (setting == Setting::one || (setting == Setting::automatic && backend != NCAST_BACKEND_CUDA)) return std::nullopt;
  std::vector<uint64_t> hosts(ranks.size());
  std::ranges::transform(ranks, hosts.begin(), &RankPlace::host);
  const auto counts = environment::level_counts(hosts, why_not);
  if (!counts || setting == Setting::two || ranks.size() > size_t{most_ranks} || !share_a_process(ranks)) return counts;
  *why_not = "a process has several ranks";
  return std::nullopt;
}

ncast_status find_levels(bootstrap::Rendezvous& all, const ncast_comm_config& config,
                         std::optional<LevelShape>* shape) {
  if (all.ranks() < least_ranks) return NCAST_OK;
  select::Options options;
  if (ncast_status status = select::Options::of(config, &options)) return status;
  const bool is_on_gpu = config.backend == NCAST_BACKEND_CUDA;
  // Copied as bytes.
  struct Member {
    RankPlace place;
    bootstrap::SharedSettings settings;
  };
  Member own{{is_on_gpu ? bootstrap::own_machine() : bootstrap::own_host(), bootstrap::current_process()}, {}};
  ncast_status status =
      own.settings.add("NARROWCAST_LEVELS", environment::levels_names[static_cast<size_t>(options.levels)]);
  if (status == NCAST_OK)
    status = own.settings.add("NARROWCAST_PARTIAL_SUMS", options.rounds_partial_sums ? "rounded" : "exact");
  if (status != NCAST_OK) return status;
  std::vector<Member> members(static_cast<size_t>(all.ranks()));
  if (status = all.all_gather(&own, sizeof own, members.data()); status != NCAST_OK) return status;
  std::vector<RankPlace> places;
  std::vector<bootstrap::SharedSettings> settings;
  for (const Member& one : members) {
    places.push_back(one.place);
    settings.push_back(one.settings);
  }
  if (status = bootstrap::check_same_settings(settings); status != NCAST_OK) return status;
  const char* why_not = nullptr;
  if (const auto counts = choose_levels(options.levels, config.backend, places, &why_not))
    *shape = {counts->groups, counts->of_group, all.rank() / counts->of_group, all.rank() % counts->of_group};
  else if (is_on_gpu && all.ranks() > most_ranks)
    return fail(NCAST_UNSUPPORTED, "more than %d ranks form two levels, but %s", most_ranks, why_not);
  return NCAST_OK;
}

ncast_status create_levels(std::unique_ptr<bootstrap::Rendezvous> all, const LevelShape& shape,
                           const ncast_comm_config& config, ncast_comm** comm) {
  LevelComms comms;
  comms.all = std::move(all);
  const ncast_status status = create_from(comms, shape, config, comm);
  if (status == NCAST_OK) return NCAST_OK;
  const std::string message = ncast_last_error();
  // Otherwise the destruction would wait for ranks that have not failed.
  if (comms.all != nullptr) comms.all->publish_failure(status, message.c_str());
  for (const OwnedComm* part : {&comms.within, &comms.between})
    if (*part != nullptr) static_cast<void>((*part)->abort());
  return fail(status, "%s", message.c_str());
}

}  // namespace narrowcast::comm
