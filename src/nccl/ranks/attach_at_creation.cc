#include "nccl/ranks/attach_at_creation.h"

#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "nccl/libraries/cuda_driver.h"
#include "nccl/ranks/attach.h"
#include "nccl/ranks/communicator.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {
namespace {

constexpr int undefined = INT_MIN;  // NCCL_CONFIG_UNDEF_INT

int blocking_of(const Config& config) {
  if (config.magic != config_magic || config.size < offsetof(Config, blocking) + sizeof config.blocking)
    return undefined;
  return config.blocking;
}

// Without regard to a configuration.
bool may_block() {
  const char* const of_all = std::getenv("NCCL_COMM_BLOCKING");
  return of_all == nullptr || std::strcmp(of_all, "0") != 0;
}

void attach_now(Communicator& comm) {
  const BesideCaptures beside_captures;
  agree_and_attach(comm);
}

}  // namespace

bool attaches_at_creation(Comm parent, const Config* config) {
  if (settings().attach != Attach::init || !may_block()) return false;
  if (config != nullptr) return blocking_of(*config) != 0;
  if (parent == nullptr) return true;
  // Without a configuration it has its parent's.
  const std::shared_ptr<Communicator> known = known_communicator(parent);
  return known != nullptr && known->made_blocking;
}

std::unique_ptr<Meeting> meeting_for(int ranks, const UniqueId& id, int rank, const Config* config) {
  if (ranks != 2 || rank < 0 || rank > 1 || settings().attach != Attach::first) return nullptr;
  if (!may_block() || (config != nullptr && blocking_of(*config) == 0)) return nullptr;
  // Communicators that follow each other then have the same id.
  if (std::getenv("NCCL_COMM_ID") != nullptr) return nullptr;
  return Meeting::create(id, rank);
}

void attach_at_creation(const std::vector<Comm>& made) {
  std::vector<std::shared_ptr<Communicator>> comms;
  for (const Comm handle : made) {
    const std::shared_ptr<Communicator> comm = find_communicator(handle);
    if (comm == nullptr) continue;
    comm->made_blocking = true;
    if (comm->why_forwarded.load() == nullptr) comms.push_back(comm);
  }
  if (comms.size() == 1) return attach_now(*comms[0]);
  // One thread each: those of one process may wait for each other.
  std::vector<std::thread> threads;
  threads.reserve(comms.size());
  for (const auto& comm : comms) threads.emplace_back([&comm] { attach_now(*comm); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace narrowcast::nccl
