#include "comm/levels/pairs.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "comm/split.h"
#include "select/options.h"
#include "status/error.h"

namespace narrowcast::comm {
namespace {

// So that the kernels of a GPU's messages with several ranks run beside each other.
constexpr uint32_t most_ctas = 4;

}  // namespace

void set_costs_of_part(ncast_comm& part, const select::CostModel& costs) {
  const select::Link link = part.decider()->traits().link;
  const bool has_network = select::is_between_hosts(link) && costs.network_gbps();
  if (part.has_levels() || costs.is_measured(link) || has_network) part.set_costs(costs);
}

// Ordered by the lower and the higher rank of each, all of them are in the same order on all ranks.
Pairs::~Pairs() {
  for (auto& [peer, comm] : comms_) comm.reset();
}

ncast_comm* Pairs::find(int peer) const {
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(peer);
  return found == comms_.end() ? nullptr : found->second.get();
}

std::vector<std::pair<int, ncast_comm*>> Pairs::comms() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<int, ncast_comm*>> comms;
  comms.reserve(comms_.size());
  for (const auto& [peer, comm] : comms_) comms.emplace_back(peer, comm.get());
  return comms;
}

ncast_status Pairs::connect(int peer, const ncast_comm_config& config) {
  {
    std::unique_lock lock(mutex_);
    connected_.wait(lock, [&] { return !connecting_.contains(peer); });
    if (comms_.contains(peer)) return NCAST_OK;
    connecting_.insert(peer);
  }
  ncast_comm* made = nullptr;
  const ncast_status status = guarded("ncast_group_end", [&] { return create(peer, config, &made); });
  const std::lock_guard lock(mutex_);
  connecting_.erase(peer);
  connected_.notify_all();
  if (status != NCAST_OK) return status;
  comms_.emplace(peer, made);
  if (costs_) set_costs_of_part(*made, *costs_);
  if (aborted_) static_cast<void>(made->abort());
  return NCAST_OK;
}

ncast_status Pairs::create(int peer, ncast_comm_config config, ncast_comm** made) const {
  select::Options options;
  if (ncast_status status = select::Options::of(config, &options)) return status;
  config.max_ctas = std::min(options.max_ctas, most_ctas);
  config.cost_model = "";  // its file may have changed since all ranks read it
  const int own = 1 - rank_of(peer);
  const auto exchange = [&](const void* mine, size_t bytes, void* both) {
    std::byte* const parts[] = {static_cast<std::byte*>(both), static_cast<std::byte*>(both) + bytes};
    std::memcpy(parts[own], mine, bytes);
    return all_.exchange_with(peer, mine, bytes, parts[1 - own]);
  };
  const Parent parent = {own, 2, exchange, [&](std::span<const int>) { return all_.check_failure(); }};
  const ncast_status status = split(parent, 0, own, NCAST_OK, config, create_one_level, made);
  if (status == NCAST_OK) return NCAST_OK;
  const std::string message = ncast_last_error();
  if (ncast_status failure = all_.check_failure()) return failure;
  return fail(status, "rank %d cannot connect to rank %d, where they are rank %d and %d: %s", all_.rank(), peer, own,
              1 - own, message.c_str());
}

void Pairs::set_costs(const select::CostModel& costs) {
  const std::lock_guard lock(mutex_);
  costs_ = costs;
  for (const auto& [peer, comm] : comms_) set_costs_of_part(*comm, costs);
}

void Pairs::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const auto& [peer, comm] : comms_) static_cast<void>(comm->abort());
}

}  // namespace narrowcast::comm
