// A communicator without a backend. Tests override what they need.
#pragma once

#include "executor/communicator.h"

namespace narrowcast::testing {

class IdleComm : public ncast_comm {
 public:
  IdleComm(int rank, int ranks) : ncast_comm(NCAST_BACKEND_CUDA, rank, ranks) {}

  ncast_status check_error() override { return NCAST_OK; }
  ncast_status call_error() override { return NCAST_OK; }
  ncast_status abort() override { return NCAST_OK; }
  executor::Counters counters() const override { return {}; }
  ncast_status exchange(const void*, size_t, void*) override { return NCAST_UNSUPPORTED; }
  ncast_status wait_until_idle() override { return NCAST_OK; }
};

}  // namespace narrowcast::testing
