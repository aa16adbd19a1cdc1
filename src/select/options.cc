#include "select/options.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "select/block_shape.h"
#include "status/error.h"

namespace narrowcast::select {
namespace {

// Empty if it is not set.
const char* variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// Non-numeric and non-positive values are ignored.
uint32_t max_ctas_of_environment() {
  const long wanted = std::strtol(variable("NARROWCAST_MAX_CTAS"), nullptr, 10);
  return wanted < 1 ? most_block_ctas : static_cast<uint32_t>(std::min<long>(wanted, most_block_ctas));
}

ncast_status transport_of_environment(ForcedTransport* transport) {
  static constexpr std::pair<const char*, ForcedTransport> paths[] = {
      {"", ForcedTransport::none},
      {"packets", ForcedTransport::packets},
      {"packets:one_shot", ForcedTransport::one_shot},
      {"packets:two_shot", ForcedTransport::two_shot},
      {"blocks", ForcedTransport::blocks},
  };
  const char* const text = variable("NARROWCAST_PATH");
  for (const auto& [name, forced] : paths) {
    if (std::strcmp(text, name) != 0) continue;
    *transport = forced;
    return NCAST_OK;
  }
  return fail(NCAST_INVALID_ARGUMENT,
              "NARROWCAST_PATH is '%s', not packets, packets:one_shot, packets:two_shot or blocks", text);
}

}  // namespace

ncast_status Options::of(const ncast_comm_config& config, Options* options) {
  *options = {};
  if (config.max_ctas > most_block_ctas)
    return fail(NCAST_INVALID_ARGUMENT, "max_ctas is %u, not 0 to %u", config.max_ctas, most_block_ctas);
  if (config.p2p < -1 || config.p2p > 1) return fail(NCAST_INVALID_ARGUMENT, "p2p is %d, not -1, 0 or 1", config.p2p);
  options->max_ctas = config.max_ctas != 0 ? config.max_ctas : max_ctas_of_environment();
  options->over_host = config.p2p != -1 ? config.p2p == 0 : std::strcmp(variable("NARROWCAST_P2P"), "0") == 0;
  const bool given = config.cost_model != nullptr;
  options->cost_model = given ? config.cost_model : variable("NARROWCAST_COST_MODEL");
  options->cost_model_from = given ? "cost_model" : "NARROWCAST_COST_MODEL";
  return transport_of_environment(&options->transport);
}

ncast_status Options::load_costs(CostModel* costs) const {
  if (!cost_model.empty()) return CostModel::load(cost_model, cost_model_from, costs);
  *costs = CostModel::shipped();
  return NCAST_OK;
}

}  // namespace narrowcast::select
