#include "nccl/ranks/communicator_config.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

// The limit for NCCL_CTA_POLICY_EFFICIENCY, which requests few CTAs at a reasonable speed. With fewer, calls over
// NVLink are slower than in NCCL.
constexpr uint32_t efficiency_ctas = 16;

// A field of the configuration; `otherwise` if the caller's structure ends before the field, or is invalid.
template <typename Field>
Field read_field(const Config* config, Field Config::* field, Field otherwise) {
  if (config == nullptr || config->magic != config_magic) return otherwise;
  const auto* const begin = reinterpret_cast<const char*>(config);
  const auto* const end = reinterpret_cast<const char*>(&(config->*field) + 1);
  return config->size < static_cast<size_t>(end - begin) ? otherwise : config->*field;
}

const char* environment(const char* name) {
  const char* const value = secure_getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// NCCL_CTA_POLICY: a number, or names of policies separated by |.
std::optional<int> cta_policy_of_environment() {
  const char* const value = environment("NCCL_CTA_POLICY");
  if (value == nullptr) return std::nullopt;
  if (const auto number = number_of<int>(value)) return number;
  int policy = 0;
  for (const std::string_view name : split(value, '|')) {
    if (name == "EFFICIENCY") policy |= cta_policy_efficiency;
    if (name == "ZERO") policy |= cta_policy_zero;
  }
  return policy;
}

}  // namespace

CommunicatorConfig read_config(const Config* config, const CommunicatorConfig* parent) {
  CommunicatorConfig result;
  if (config == nullptr && parent != nullptr) result = *parent;
  const char* const name = read_field<const char*>(config, &Config::comm_name, nullptr);
  result.name = name != nullptr ? name : "";

  const char* const env_max_ctas = environment("NCCL_MAX_CTAS");
  const int max_ctas = env_max_ctas != nullptr ? number_of<int>(env_max_ctas).value_or(0)
                                               : read_field(config, &Config::max_ctas, config_undefined);
  if (max_ctas > 0) result.max_ctas = std::min(static_cast<uint32_t>(max_ctas), environment::most_ctas);

  const int policy = cta_policy_of_environment().value_or(read_field(config, &Config::cta_policy, config_undefined));
  if (policy >= 0) {
    result.zero_ctas = (policy & cta_policy_zero) != 0;
    if ((policy & cta_policy_efficiency) != 0) result.max_ctas = std::min(result.max_ctas, efficiency_ctas);
  }
  return result;
}

bool may_block(const Config* config, bool parent_blocks) {
  const char* const of_all = secure_getenv("NCCL_COMM_BLOCKING");
  if (of_all != nullptr && std::strcmp(of_all, "0") == 0) return false;
  return config != nullptr ? read_field(config, &Config::blocking, config_undefined) != 0 : parent_blocks;
}

}  // namespace narrowcast::nccl
