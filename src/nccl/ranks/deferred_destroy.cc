#include "nccl/ranks/deferred_destroy.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/libraries/cuda_driver.h"

namespace narrowcast::nccl {
namespace {

struct Deferred {
  std::mutex mutex;
  std::vector<LocalRank> waiting;  // for other ranks of this process
  std::vector<std::pair<ncast_comm*, std::vector<ncast_loaded_plan*>>> comms;
  std::vector<std::pair<int, void*>> memory;  // with its device
};
Deferred& deferred() {
  static auto* const the = new Deferred;  // never freed: communicators may be destroyed while the process exits
  return *the;
}

// All ranks of the communicator in this process if `last` was the last one; otherwise none.
std::vector<LocalRank> all_local_ranks(const LocalRank& last) {
  std::vector<LocalRank> all;
  const std::lock_guard lock(deferred().mutex);
  auto& waiting = deferred().waiting;
  waiting.push_back(last);
  const auto same_communicator = [&](const LocalRank& one) { return one.id == last.id; };
  if (std::ranges::count_if(waiting, same_communicator) < last.local_ranks) return all;
  std::ranges::copy_if(waiting, std::back_inserter(all), same_communicator);
  std::erase_if(waiting, same_communicator);
  return all;
}

// The plans last: then they only free their memory, and do not wait for the communicator's calls.
void destroy(ncast_comm* comm, const std::vector<ncast_loaded_plan*>& plans) {
  engine()->ncast_comm_destroy(comm);
  for (ncast_loaded_plan* const plan : plans) engine()->ncast_loaded_plan_destroy(plan);
}

void destroy_rank(const LocalRank& rank) {
  const DeviceGuard guard(rank.device);
  destroy(rank.comm, rank.plans);
}

}  // namespace

void destroy_with_local_ranks(const LocalRank& rank) {
  const std::vector<LocalRank> all = all_local_ranks(rank);
  if (all.size() == 1) return destroy_rank(all[0]);
  std::vector<std::thread> threads;
  threads.reserve(all.size());
  for (const LocalRank& one : all) threads.emplace_back(destroy_rank, one);
  for (std::thread& thread : threads) thread.join();
}

void defer_destroy(ncast_comm* comm, std::vector<ncast_loaded_plan*> plans) {
  const std::lock_guard lock(deferred().mutex);
  deferred().comms.emplace_back(comm, std::move(plans));
}

void defer_free(int device, void* memory) {
  const std::lock_guard lock(deferred().mutex);
  deferred().memory.emplace_back(device, memory);
}

void run_deferred() {
  std::vector<std::pair<ncast_comm*, std::vector<ncast_loaded_plan*>>> comms;
  std::vector<std::pair<int, void*>> memory;
  {
    const std::lock_guard lock(deferred().mutex);
    comms.swap(deferred().comms);
    memory.swap(deferred().memory);
  }
  for (const auto& [comm, plans] : comms) destroy(comm, plans);
  for (const auto& [device, address] : memory) {
    const DeviceGuard guard(device);
    driver()->cuMemFree_v2(address);
  }
}

}  // namespace narrowcast::nccl
