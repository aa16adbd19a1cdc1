// ncast_comm_split: the ranks exchange their colors, and the first rank of each color sends the unique id of the new
// communicator to the others.
#include "comm/split.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/host.h"
#include "bootstrap/interrupt.h"
#include "bootstrap/tcp_address.h"
#include "bootstrap/unique_id.h"
#include "comm/arguments.h"
#include "comm/create.h"
#include "comm/launch.h"
#include "executor/backend.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "narrowcast/comm.h"
#include "status/error.h"

namespace {

using narrowcast::fail;
using narrowcast::guarded;
using narrowcast::null_argument;
using namespace narrowcast::comm;
using namespace narrowcast::executor;
namespace bootstrap = narrowcast::bootstrap;

constexpr const char* function = "ncast_comm_split";

// What a rank contributes to an exchange. A rank with an error still takes part, so that the others do not wait for it.
struct Part {
  int32_t color, key;
  ncast_backend backend;
  ncast_status status;
  uint64_t network;    // bootstrap::own_network()
  uint64_t host;       // bootstrap::own_host()
  char message[200];   // if status is not OK
  ncast_unique_id id;  // of the first rank of a color, in the second exchange

  void set_status(ncast_status own) {
    status = own;
    if (own != NCAST_OK) std::snprintf(message, sizeof message, "%s", ncast_last_error());
  }
};

ncast_status exchange(const Parent& parent, const Part& own, std::vector<Part>* all) {
  all->resize(static_cast<size_t>(parent.ranks));
  const ncast_status status = parent.exchange(&own, sizeof own, all->data());
  // The error of this rank may have made others abort the exchange.
  if (own.status != NCAST_OK) return fail(own.status, "%s", own.message);
  if (status != NCAST_OK) return status;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const Part& part = (*all)[rank];
    if (part.status == NCAST_OK) continue;
    return fail(NCAST_REMOTE_ERROR, "%s: rank %zu cannot split: %.*s", function, rank,
                static_cast<int>(sizeof part.message), part.message);
  }
  return NCAST_OK;
}

ncast_status check(const ncast_comm* comm, int color, const ncast_comm_config* given, ncast_comm_config* config) {
  if (color < NCAST_SPLIT_NOCOLOR)
    return fail(NCAST_INVALID_ARGUMENT, "%s: color is %d, not 0 or more, nor NCAST_SPLIT_NOCOLOR", function, color);
  const ncast_comm_config own = comm->config();
  if (ncast_status status = checked_config(1, 0, given != nullptr ? given : &own, config)) return status;
  if (config->device < 0) config->device = own.device;
  return NCAST_OK;
}

// The ranks of `color`, in the order of the new communicator.
std::vector<int> members(const std::vector<Part>& all, int color) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].color == color) ranks.push_back(static_cast<int>(rank));
  std::ranges::sort(ranks, {}, [&](int rank) { return std::pair(all[static_cast<size_t>(rank)].key, rank); });
  return ranks;
}

// On all ranks, because all of them take part in the second exchange.
ncast_status check_same_backend(const std::vector<Part>& all) {
  const auto joins = [](const Part& part) { return part.color != NCAST_SPLIT_NOCOLOR; };
  const auto first = std::ranges::find_if(all, joins);
  for (auto other = first; other != all.end(); ++other) {
    if (!joins(*other) || other->backend == first->backend) continue;
    return fail(NCAST_MISMATCH, "%s: the backend is %s on rank %td, but %s on rank %td", function,
                backend_name(other->backend), other - all.begin(), backend_name(first->backend), first - all.begin());
  }
  return NCAST_OK;
}

// Ends the wait for the ranks of the new communicator if one of them has died or the old communicator has failed: a
// rank that got as far as the exchange may not have joined the new one.
class ParentCheck {
 public:
  ParentCheck(const Parent& parent, const std::vector<int>& members) : parent_(parent), members_(members) {}

 private:
  static int is_over(void* self) {
    auto& check = *static_cast<ParentCheck*>(self);
    if (check.scope_.outer_interrupts()) return 1;
    const ncast_status status = check.parent_.check_alive(check.members_);
    if (status == NCAST_OK) return 0;
    const std::string message = ncast_last_error();
    bootstrap::set_interruption_cause(status, ("in the communicator that was split, " + message).c_str());
    return 1;
  }

  const Parent& parent_;
  const std::vector<int>& members_;
  bootstrap::InterruptScope scope_{is_over, this};
};

}  // namespace

namespace narrowcast::comm {

ncast_status split(const Parent& parent, int color, int key, ncast_status status, const ncast_comm_config& config,
                   decltype(create)* create_part, ncast_comm** result) {
  Part own = {color, key, config.backend, NCAST_OK, bootstrap::own_network(), bootstrap::own_host(), {}, {}};
  own.set_status(status);
  std::vector<Part> all;
  if (status = exchange(parent, own, &all); status != NCAST_OK) return status;
  const std::vector<int> ranks = members(all, color);
  if (status = check_same_backend(all); status != NCAST_OK) return status;
  const bool joins = color != NCAST_SPLIT_NOCOLOR, is_first = joins && ranks[0] == parent.rank;
  const auto is_near = [&](int rank) { return all[static_cast<size_t>(rank)].network == own.network; };
  const auto shares_memory = [&](int rank) { return all[static_cast<size_t>(rank)].host == own.host; };
  if (is_first) {
    const auto reach = std::ranges::all_of(ranks, is_near) ? bootstrap::Reach::local : bootstrap::Reach::anywhere;
    own.set_status(make_id(reach, !std::ranges::all_of(ranks, shares_memory), 0, &own.id));
  }
  status = exchange(parent, own, &all);
  if (status == NCAST_OK && joins) {
    const auto rank = std::ranges::find(ranks, parent.rank) - ranks.begin();
    const ncast_unique_id id = all[static_cast<size_t>(ranks[0])].id;
    const ParentCheck check(parent, ranks);
    status = create_part(result, static_cast<int>(ranks.size()), &id, static_cast<int>(rank), &config);
  }
  if (status != NCAST_OK && is_first && bootstrap::is_unique_id(own.id)) {
    const std::string message = ncast_last_error();
    close_hub(own.id, {});
    return fail(status, "%s", message.c_str());
  }
  return status;
}

}  // namespace narrowcast::comm

extern "C" ncast_status ncast_comm_split(ncast_comm* comm, int color, int key, const ncast_comm_config* given,
                                         ncast_comm** result) {
  return guarded(function, [&] {
    if (result == nullptr) return null_argument(function, "result");
    *result = nullptr;
    if (is_group_open()) return fail(NCAST_INVALID_ARGUMENT, "%s: a group is open on this thread", function);
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (ncast_status status = comm->check_alone()) {
      const std::string message = ncast_last_error();
      return fail(status, "%s: %s", function, message.c_str());
    }
    ncast_comm_config config = comm->config();
    const ncast_status status = check(comm, color, given, &config);
    const Parent parent = {
        comm->rank(), comm->ranks(),
        [comm](const void* mine, size_t bytes, void* all) { return comm->exchange(mine, bytes, all); },
        [comm](std::span<const int> ranks) { return comm->check_alive(ranks); }};
    return split(parent, color, key, status, config, create, result);
  });
}
