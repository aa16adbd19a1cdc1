// The plans that a communicator has prepared: those of the library's own calls, and those that the user has loaded.
#pragma once

#include <map>
#include <tuple>

#include "executor/host/plan_run.h"

namespace narrowcast::executor::host {

class Plans {
 public:
  explicit Plans(Communicator& comm) : comm_(comm) {}

  // The plan that runs a call. Plans of the library's own calls are built when they are first needed.
  ncast_status find(const Call& call, PlanRun** run);

 private:
  using Key = std::tuple<Operation, int, ncast_codec>;  // operation, root, codec

  ncast_status build(const Key& key, std::unique_ptr<PlanRun>* run);

  Communicator& comm_;
  std::map<Key, std::unique_ptr<PlanRun>> own_;
};

}  // namespace narrowcast::executor::host
