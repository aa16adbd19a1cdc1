// How the ranks of a communicator, or others that are connected, form new communicators.
#pragma once

#include <cstddef>
#include <span>

#include "comm/create.h"
#include "narrowcast/comm.h"

namespace narrowcast::comm {

// Ranks that split.
class Parent {
 public:
  virtual ~Parent() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // As in ncast_comm.
  virtual ncast_status exchange(const void* mine, size_t bytes, void* all) = 0;
  virtual ncast_status check_alive(std::span<const int> ranks) = 0;
};

// As ncast_comm_split, with create_part() in place of ncast_comm_create. status: the last error, if this rank cannot
// take part; otherwise config has passed checked_config().
ncast_status split(Parent& parent, int color, int key, ncast_status status, const ncast_comm_config& config,
                   decltype(create)* create_part, ncast_comm** result);

}  // namespace narrowcast::comm
