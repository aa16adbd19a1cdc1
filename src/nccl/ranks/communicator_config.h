// The parts of a communicator's ncclConfig_t that the drop-in uses, and the environment variables that override them.
#pragma once

#include <cstdint>
#include <string>

#include "nccl/abi/nccl_types.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

struct CommunicatorConfig {
  std::string name;                             // commName; empty: none
  uint32_t max_ctas = environment::unset_ctas;  // by maxCTAs and CTAPolicy
  bool zero_ctas = false;                       // NCCL_CTA_POLICY_ZERO: leave the SMs to the program
  bool operator==(const CommunicatorConfig&) const = default;
};

// config: NULL if the caller passed none. parent: the configuration of the communicator from which this one is derived;
// NULL: none. A communicator without a configuration inherits its parent's limits, as in NCCL, but not its name.
CommunicatorConfig read_config(const Config* config, const CommunicatorConfig* parent);

// Whether the communicator blocks, as far as this is known before it is created. parent_blocks: the result if there is
// no configuration.
bool may_block(const Config* config, bool parent_blocks = true);

}  // namespace narrowcast::nccl
