#include "channel/network/introduction.h"

#include <unistd.h>

#include <algorithm>

#include "bootstrap/host.h"
#include "status/error.h"
#include "status/fnv1a.h"

namespace narrowcast::channel {
namespace {

// Copied as bytes.
struct Introduction {
  uint64_t host;
  uint64_t machine;  // a hash; 0 if it is unknown
  int64_t pid;
  char name[40];  // of the host
};

}  // namespace

ncast_status introduce(bootstrap::Rendezvous& rendezvous, uint64_t host, Introductions* all) {
  const std::string boot = bootstrap::boot_id();
  Introduction own = {host, boot.empty() ? 0 : fnv1a(boot), getpid(), {}};
  const std::string name = bootstrap::host_name();
  std::copy_n(name.data(), std::min(name.size(), sizeof own.name - 1), own.name);
  std::vector<Introduction> introductions(static_cast<size_t>(rendezvous.ranks()));
  if (ncast_status status = rendezvous.all_gather(&own, sizeof own, introductions.data())) return status;
  *all = {};
  for (Introduction& one : introductions) {
    one.name[sizeof one.name - 1] = 0;
    all->names.push_back("rank " + std::to_string(all->names.size()) + " (pid " + std::to_string(one.pid) + " on " +
                         one.name + ")");
    all->hosts.push_back(one.host);
  }
  // All ranks find the same pair.
  for (size_t rank = 0; rank < introductions.size(); ++rank) {
    const auto first = static_cast<size_t>(std::ranges::find(all->hosts, all->hosts[rank]) - all->hosts.begin());
    if (introductions[first].machine == introductions[rank].machine) continue;
    return fail(NCAST_MISMATCH,
                "%s and %s are on different machines, but have the same NARROWCAST_HOSTID or NCCL_HOSTID",
                all->names[first].c_str(), all->names[rank].c_str());
  }
  return NCAST_OK;
}

}  // namespace narrowcast::channel
