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

struct Yard {
  std::mutex mutex;
  std::vector<Retired> waiting;  // for others of this process
  std::vector<ncast_comm*> buried;
  std::vector<std::pair<int, void*>> memory;  // with its device
};
Yard& yard() {
  static auto* const the = new Yard;  // never freed: communicators may go when the process ends
  return *the;
}

// All of that communicator in this process, once they are complete; else none.
std::vector<Retired> complete_with(const Retired& last) {
  std::vector<Retired> complete;
  const std::lock_guard lock(yard().mutex);
  auto& waiting = yard().waiting;
  waiting.push_back(last);
  const auto is_of_it = [&](const Retired& one) { return one.id == last.id; };
  if (std::ranges::count_if(waiting, is_of_it) < last.ranks_here) return complete;
  std::ranges::copy_if(waiting, std::back_inserter(complete), is_of_it);
  std::erase_if(waiting, is_of_it);
  return complete;
}

void destroy(const Retired& retired) {
  const OnDevice on_device(retired.device);
  engine()->ncast_comm_destroy(retired.comm);
}

}  // namespace

void retire(const Retired& retired) {
  const std::vector<Retired> complete = complete_with(retired);
  if (complete.size() == 1) return destroy(complete[0]);
  std::vector<std::thread> threads;
  threads.reserve(complete.size());
  for (const Retired& one : complete) threads.emplace_back(destroy, one);
  for (std::thread& thread : threads) thread.join();
}

void bury(ncast_comm* comm) {
  const std::lock_guard lock(yard().mutex);
  yard().buried.push_back(comm);
}

void bury_memory(int device, void* memory) {
  const std::lock_guard lock(yard().mutex);
  yard().memory.emplace_back(device, memory);
}

void empty_graveyard() {
  std::vector<ncast_comm*> buried;
  std::vector<std::pair<int, void*>> memory;
  {
    const std::lock_guard lock(yard().mutex);
    buried.swap(yard().buried);
    memory.swap(yard().memory);
  }
  for (ncast_comm* const comm : buried) engine()->ncast_comm_destroy(comm);
  for (const auto& [device, address] : memory) {
    const OnDevice on_device(device);
    driver()->cuMemFree_v2(address);
  }
}

}  // namespace narrowcast::nccl
