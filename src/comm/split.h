// How the ranks of a communicator, or others that are connected, form new communicators.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "comm/create.h"
#include "narrowcast/comm.h"

namespace narrowcast::comm {

// Ranks that split. The functions are as in ncast_comm.
struct Parent {
  int rank, ranks;
  std::function<ncast_status(const void* mine, size_t bytes, void* all)> exchange;
  std::function<ncast_status(std::span<const int> ranks)> check_alive;
};

// As ncast_comm_split, with create_part() in place of ncast_comm_create. status: the last error, if this rank cannot
// take part; otherwise config has passed checked_config().
ncast_status split(const Parent& parent, int color, int key, ncast_status status, const ncast_comm_config& config,
                   decltype(create)* create_part, ncast_comm** result);

}  // namespace narrowcast::comm
