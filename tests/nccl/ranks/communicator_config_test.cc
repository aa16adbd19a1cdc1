#include "nccl/ranks/communicator_config.h"

#include <cstddef>

#include "doctest/doctest.h"
#include "support/environment.h"

using namespace narrowcast::nccl;
using narrowcast::testing::Environment;

namespace {

Config config_with(int max_ctas, int cta_policy, const char* name = nullptr) {
  constexpr int undefined = config_undefined;
  return {.size = sizeof(Config),
          .magic = config_magic,
          .version = 22700,
          .blocking = undefined,
          .cga_cluster_size = undefined,
          .min_ctas = undefined,
          .max_ctas = max_ctas,
          .net_name = nullptr,
          .split_share = undefined,
          .traffic_class = undefined,
          .comm_name = name,
          .collnet_enable = undefined,
          .cta_policy = cta_policy};
}

}  // namespace

TEST_CASE("a communicator without a configuration has no limits") {
  CHECK(read_config(nullptr, nullptr) == CommunicatorConfig());
  const Config undefined = config_with(config_undefined, config_undefined);
  CHECK(read_config(&undefined, nullptr) == CommunicatorConfig());
}

TEST_CASE("maxCTAs and CTAPolicy limit the CTAs of the engine") {
  const Config few = config_with(8, config_undefined, "tensor"), many = config_with(100, config_undefined);
  CHECK(read_config(&few, nullptr).max_ctas == 8);
  CHECK(read_config(&few, nullptr).name == "tensor");
  CHECK(read_config(&many, nullptr).max_ctas == narrowcast::environment::most_ctas);
  const Config efficient = config_with(config_undefined, cta_policy_efficiency);
  CHECK(read_config(&efficient, nullptr).max_ctas == 16);
  CHECK_FALSE(read_config(&efficient, nullptr).zero_ctas);
  const Config efficient_and_few = config_with(8, cta_policy_efficiency);
  CHECK(read_config(&efficient_and_few, nullptr).max_ctas == 8);
  for (const int policy : {cta_policy_zero, cta_policy_zero | cta_policy_efficiency}) {
    const Config zero = config_with(config_undefined, policy);
    CHECK(read_config(&zero, nullptr).zero_ctas);
  }
}

TEST_CASE("fields beyond the size that the caller states are not read") {
  Config older = config_with(8, cta_policy_zero, "tensor");
  older.size = offsetof(Config, comm_name);
  CHECK(read_config(&older, nullptr).name.empty());
  CHECK(read_config(&older, nullptr).max_ctas == 8);
  CHECK_FALSE(read_config(&older, nullptr).zero_ctas);
  older.magic = 0;
  CHECK(read_config(&older, nullptr) == CommunicatorConfig());
}

TEST_CASE("without a configuration the parent's limits are inherited, but not its name") {
  const CommunicatorConfig parent{.name = "tensor", .max_ctas = 8, .zero_ctas = true};
  const CommunicatorConfig child = read_config(nullptr, &parent);
  CHECK(child.name.empty());
  CHECK(child.max_ctas == 8);
  CHECK(child.zero_ctas);
  const Config own = config_with(config_undefined, config_undefined);
  CHECK(read_config(&own, &parent) == CommunicatorConfig());
}

TEST_CASE("the environment takes precedence over the configuration, as in NCCL") {
  const Config config = config_with(8, cta_policy_zero);
  {
    const Environment max_ctas("NCCL_MAX_CTAS", "4");
    CHECK(read_config(&config, nullptr).max_ctas == 4);
    CHECK(read_config(nullptr, nullptr).max_ctas == 4);
  }
  for (const char* policy : {"0", "EFFICIENCY", "1"}) {
    const Environment cta_policy("NCCL_CTA_POLICY", policy);
    CHECK_FALSE(read_config(&config, nullptr).zero_ctas);
  }
  for (const char* policy : {"2", "ZERO", "EFFICIENCY|ZERO"}) {
    const Environment cta_policy("NCCL_CTA_POLICY", policy);
    CHECK(read_config(nullptr, nullptr).zero_ctas);
  }
}

TEST_CASE("a communicator blocks unless its configuration or the environment says otherwise") {
  Config config = config_with(config_undefined, config_undefined);
  CHECK(may_block(nullptr));
  CHECK_FALSE(may_block(nullptr, false));
  CHECK(may_block(&config, false));
  config.blocking = 0;
  CHECK_FALSE(may_block(&config));
  const Environment blocking("NCCL_COMM_BLOCKING", "0");
  CHECK_FALSE(may_block(nullptr));
}
