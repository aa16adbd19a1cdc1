// The plans that a communicator has prepared: those of the library's own calls, and those that the user has loaded.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>

#include "executor/host/plan_run.h"

namespace narrowcast::executor::host {

class Plans {
 public:
  explicit Plans(Communicator& comm) : comm_(comm) {}

  // The plan that runs a call, whose turn it is. Plans of builders are built when they are first needed.
  ncast_status find(const Call& call, PlanRun** run);

  // Prepares a plan that the user loads, and gives it the next number, also if this fails. Errors: those of
  // PlanMemory::allocate().
  ncast_status load(std::shared_ptr<const ProvedPlan> plan, uint32_t* number);
  // Frees the memory of a loaded plan. None of its calls is running.
  void unload(uint32_t number);

 private:
  // Operation, root, codec, that of results if it is another one, builder.
  using Key = std::tuple<Operation, int, ncast_codec, std::optional<ncast_codec>, std::string_view>;

  ncast_status build(const Key& key, std::unique_ptr<PlanRun>* run);

  Communicator& comm_;
  std::map<Key, std::unique_ptr<PlanRun>> own_;
  std::mutex mutex_;                              // of the rest
  std::vector<std::unique_ptr<PlanRun>> loaded_;  // number n at n - 1; NULL if it is not loaded
};

}  // namespace narrowcast::executor::host
