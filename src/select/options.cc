#include "select/options.h"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "environment/communicator_variables.h"
#include "select/block_shape.h"
#include "status/error.h"

namespace narrowcast::select {
namespace {

// Empty if it is not set.
const char* variable(const char* name) {
  const char* const text = secure_getenv(name);
  return text == nullptr ? "" : text;
}

static_assert(environment::most_ctas == most_block_ctas);

// Sets *value if the variable is set.
template <typename Value>
ncast_status read(const char* name, std::optional<Value> (*parse)(std::string_view), const char* values, Value* value) {
  const char* const text = variable(name);
  if (*text == '\0') return NCAST_OK;
  const std::optional<Value> parsed = parse(text);
  if (!parsed) return fail(NCAST_INVALID_ARGUMENT, "%s is '%s', not %s", name, text, values);
  *value = *parsed;
  return NCAST_OK;
}

constexpr const char* shared_kib_values = "a number from 64 to 227";
static_assert(least_shared_bytes == 64 << 10 && most_shared_bytes == 227 << 10);
std::optional<uint32_t> shared_bytes_of(std::string_view text) {
  const std::optional<uint32_t> kib = environment::number_of<uint32_t>(text);
  if (!kib || *kib < least_shared_bytes >> 10 || *kib > most_shared_bytes >> 10) return std::nullopt;
  return *kib << 10;
}

constexpr const char* path_values = "packets, packets:one_shot, packets:two_shot or blocks";
constexpr std::pair<const char*, ForcedTransport> paths[] = {
    {"packets", ForcedTransport::packets},
    {"packets:one_shot", ForcedTransport::one_shot},
    {"packets:two_shot", ForcedTransport::two_shot},
    {"blocks", ForcedTransport::blocks},
};

std::optional<ForcedTransport> transport_of(std::string_view text) {
  for (const auto& [name, forced] : paths)
    if (name == text) return forced;
  return std::nullopt;
}

constexpr const char* partial_sums_values = "exact or rounded";
std::optional<bool> rounds_of(std::string_view text) {
  if (text != "exact" && text != "rounded") return std::nullopt;
  return text == "rounded";
}

}  // namespace

const char* name_of(ForcedTransport transport) {
  for (const auto& [name, forced] : paths)
    if (forced == transport) return name;
  return "unset";
}

ncast_status Options::of(const ncast_comm_config& config, Options* options) {
  *options = {};
  if (config.max_ctas > most_block_ctas)
    return fail(NCAST_INVALID_ARGUMENT, "max_ctas is %u, not 0 to %u", config.max_ctas, most_block_ctas);
  if (config.p2p < -1 || config.p2p > 1) return fail(NCAST_INVALID_ARGUMENT, "p2p is %d, not -1, 0 or 1", config.p2p);
  options->max_ctas = config.max_ctas != 0 ? config.max_ctas : most_block_ctas;
  if (config.max_collective_ctas > most_block_ctas)
    return fail(NCAST_INVALID_ARGUMENT, "max_collective_ctas is %u, not 0 to %u", config.max_collective_ctas,
                most_block_ctas);
  options->max_collective_ctas = config.max_collective_ctas != 0 ? config.max_collective_ctas : most_block_ctas;
  bool p2p = config.p2p != 0;
  // A variable that the configuration overrides is not read: the drop-in has warned about an invalid one.
  if (config.max_ctas == 0)
    if (ncast_status status =
            read("NARROWCAST_MAX_CTAS", environment::max_ctas_of, environment::max_ctas_values, &options->max_ctas))
      return status;
  options->max_ctas = std::min(options->max_ctas, most_block_ctas);
  if (config.p2p == -1)
    if (ncast_status status = read("NARROWCAST_P2P", environment::p2p_of, environment::p2p_values, &p2p)) return status;
  options->over_host = !p2p;
  const bool given = config.cost_model != nullptr;
  options->cost_model = given ? config.cost_model : variable("NARROWCAST_COST_MODEL");
  options->cost_model_from = given ? "cost_model" : "NARROWCAST_COST_MODEL";
  if (ncast_status status = read("NARROWCAST_SHARED_KIB", shared_bytes_of, shared_kib_values, &options->shared_bytes))
    return status;
  if (ncast_status status =
          read("NARROWCAST_LEVELS", environment::levels_of, environment::levels_values, &options->levels))
    return status;
  if (ncast_status status =
          read("NARROWCAST_PARTIAL_SUMS", rounds_of, partial_sums_values, &options->rounds_partial_sums))
    return status;
  return read("NARROWCAST_PATH", transport_of, path_values, &options->transport);
}

ncast_status Options::load_costs(CostModel* costs) const {
  if (!cost_model.empty()) return CostModel::load(cost_model, cost_model_from, costs);
  *costs = CostModel::shipped();
  return NCAST_OK;
}

}  // namespace narrowcast::select
