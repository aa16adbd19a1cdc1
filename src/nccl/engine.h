// libnarrowcast.so, loaded when a communicator is first used.
#pragma once

#include "narrowcast/codec.h"
#include "narrowcast/comm.h"
#include "narrowcast/explain.h"

namespace narrowcast::nccl {

struct Engine {
#define ENGINE_FUNCTIONS(FUNCTION)  \
  FUNCTION(version)                 \
  FUNCTION(last_error)              \
  FUNCTION(bound)                   \
  FUNCTION(encode)                  \
  FUNCTION(decode)                  \
  FUNCTION(comm_config_init)        \
  FUNCTION(comm_create_by_exchange) \
  FUNCTION(comm_destroy)            \
  FUNCTION(comm_abort)              \
  FUNCTION(comm_async_error)        \
  FUNCTION(comm_get_counters)       \
  FUNCTION(comm_predict)            \
  FUNCTION(predict)                 \
  FUNCTION(group_start)             \
  FUNCTION(group_end)               \
  FUNCTION(send)                    \
  FUNCTION(recv)                    \
  FUNCTION(broadcast)               \
  FUNCTION(reduce)                  \
  FUNCTION(gather)                  \
  FUNCTION(scatter)                 \
  FUNCTION(all_gather)              \
  FUNCTION(all_to_all)              \
  FUNCTION(reduce_scatter)          \
  FUNCTION(all_reduce)
#define DECLARE(name) decltype(&::ncast_##name) ncast_##name;
  ENGINE_FUNCTIONS(DECLARE)
#undef DECLARE
  // CUDA, or HOST where NARROWCAST_TEST_BACKEND says so: the project's own tests run without GPUs.
  ncast_backend backend;
  // The most ranks of a communicator.
  int most_ranks;
};

// NULL: it cannot be loaded, which has been warned of.
const Engine* engine();

// As the settings have a communicator made.
ncast_comm_config config_of_settings(const Engine& narrowcast);

}  // namespace narrowcast::nccl
