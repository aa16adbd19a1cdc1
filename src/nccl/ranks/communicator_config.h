// What a communicator's ncclConfig_t, and the environment variables that NCCL gives precedence over it, mean for the
// drop-in.
#pragma once

#include <cstdint>
#include <string>

#include "nccl/abi/nccl_types.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

struct CommunicatorConfig {
  std::string name;                    // commName; empty: none
  uint32_t max_ctas = max_ctas_limit;  // by maxCTAs and CTAPolicy
  bool zero_ctas = false;              // NCCL_CTA_POLICY_ZERO: leave the SMs to the program
  bool operator==(const CommunicatorConfig&) const = default;
};

// config: NULL: none was given. parent: of the communicator that this one is derived from; NULL: none. Without a
// configuration of its own a communicator inherits its parent's limits, as in NCCL, but not its name.
CommunicatorConfig read_config(const Config* config, const CommunicatorConfig* parent);

// Whether the communicator blocks, as far as this can be told before it is created. parent_blocks: for one without a
// configuration.
bool may_block(const Config* config, bool parent_blocks = true);

}  // namespace narrowcast::nccl
