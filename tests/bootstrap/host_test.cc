// Which processes count as processes of one host.
#include "bootstrap/host.h"

#include <unistd.h>

#include <climits>
#include <string>

#include "support/environment.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

TEST_CASE("processes of a machine are on one host, unless a variable names another") {
  const Environment ours("NARROWCAST_HOSTID", ""), theirs("NCCL_HOSTID", "");
  const uint64_t host = bootstrap::own_host();
  char name[HOST_NAME_MAX + 1] = {};
  REQUIRE(gethostname(name, sizeof name) == 0);
  CHECK(bootstrap::host_name() == name);
  run_processes(1, [&](int) { EXPECT(bootstrap::own_host() == host); });
  const Environment other("NCCL_HOSTID", "one");
  const uint64_t of_nccl = bootstrap::own_host();
  CHECK(of_nccl != host);
  CHECK(bootstrap::host_name() == "one");
  const Environment preferred("NARROWCAST_HOSTID", "two");
  CHECK(bootstrap::own_host() != of_nccl);
  CHECK(bootstrap::host_name() == "two");
  const Environment same("NARROWCAST_HOSTID", "one");
  CHECK(bootstrap::own_host() == of_nccl);
}

}  // namespace
}  // namespace narrowcast::testing
