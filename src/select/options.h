// The options of a communicator on one rank: from its configuration, and from the environment if that leaves them open.
// No other code reads these variables.
#pragma once

#include <cstdint>
#include <string>

#include "environment/communicator_variables.h"
#include "narrowcast/comm.h"
#include "select/call_shape.h"

namespace narrowcast::select {

// The value of NARROWCAST_PATH; "unset" if no transport is forced.
const char* name_of(ForcedTransport transport);

struct Options {
  uint32_t max_ctas = 0;                      // 1 to most_block_ctas
  uint32_t max_collective_ctas = 0;           // the same
  uint32_t shared_bytes = most_shared_bytes;  // of a CTA, at most
  bool over_host = false;
  ForcedTransport transport = ForcedTransport::none;
  environment::Levels levels = environment::Levels::automatic;
  bool rounds_partial_sums = false;  // of a host, to the type of the call, before they are combined
  std::string cost_model;            // the path of a file; empty: the built-in model
  std::string cost_model_from;       // the setting that names it

  // Errors: INVALID_ARGUMENT, also for an invalid variable; the message says which values are valid.
  static ncast_status of(const ncast_comm_config& config, Options* options);
  ncast_status load_costs(CostModel* costs) const;
};

}  // namespace narrowcast::select
