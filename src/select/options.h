// How a rank wants its communicators to work: by their configuration, and where that leaves it open by the environment. The one
// place that reads both.
#pragma once

#include <cstdint>
#include <string>

#include "narrowcast/comm.h"
#include "select/cost_model.h"

namespace narrowcast::select {

// For measurements: blocks always, or packets wherever they can be.
enum class WantedPath : uint32_t { cheapest, packets, blocks };

struct Wishes {
  uint32_t max_ctas = 0;  // 1 to most_block_ctas
  bool over_host = false;
  WantedPath path = WantedPath::cheapest;
  std::string cost_model;       // the path of a file; empty: the model that is built in
  std::string cost_model_from;  // what names it

  // Errors: INVALID_ARGUMENT.
  static ncast_status of(const ncast_comm_config& config, Wishes* wishes);
  ncast_status load_costs(CostModel* costs) const;
};

}  // namespace narrowcast::select
