#include "nccl/ranks/attach_at_creation.h"

#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include "nccl/libraries/cuda_driver.h"
#include "nccl/ranks/attach.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

bool attaches_at_creation(Comm parent, const Config* config) {
  if (settings().attach != Attach::init) return false;
  bool parent_blocks = true;
  if (config == nullptr && parent != nullptr) {
    const std::shared_ptr<Communicator> known = known_communicator(parent);
    parent_blocks = known != nullptr && known->attaches_at_creation;
  }
  return may_block(config, parent_blocks);
}

std::unique_ptr<PairHandshake> handshake_for(int ranks, const UniqueId& id, int rank, const Config* config) {
  if (ranks != 2 || rank < 0 || rank > 1 || settings().attach != Attach::first || !may_block(config)) return nullptr;
  // With NCCL_COMM_ID consecutive communicators have the same id.
  if (secure_getenv("NCCL_COMM_ID") != nullptr) return nullptr;
  return PairHandshake::create(id, rank);
}

void attach_at_creation(const std::vector<Comm>& created) {
  std::vector<std::shared_ptr<Communicator>> comms;
  for (const Comm handle : created) {
    const std::shared_ptr<Communicator> comm = find_or_add_communicator(handle);
    if (comm == nullptr) continue;
    comm->attaches_at_creation = true;
    if (comm->why_forwarded.load() == nullptr) comms.push_back(comm);
  }
  const auto attach_now = [](Communicator& comm) {
    const RelaxedCaptureMode relaxed;
    agree_and_attach(comm);
  };
  if (comms.size() == 1)
    attach_now(*comms[0]);
  else
    for_each_in_threads(comms, attach_now);
}

void for_each_in_threads(const std::vector<std::shared_ptr<Communicator>>& comms, void (*function)(Communicator&)) {
  std::vector<std::thread> threads;
  threads.reserve(comms.size());
  for (const auto& comm : comms) threads.emplace_back(function, std::ref(*comm));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace narrowcast::nccl
