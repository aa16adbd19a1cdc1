#include "bootstrap/numa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "status/error.h"

namespace narrowcast::bootstrap {
namespace {
// The policies MPOL_PREFERRED and MPOL_BIND of the kernel, whose header belongs to libnuma.
constexpr int prefer_policy = 1;
constexpr int bind_policy = 2;
constexpr int max_nodes = 1024;
}  // namespace

ncast_status place_on_node(void* data, size_t bytes, int node, NodePolicy policy) {
  if (node < 0 || node >= max_nodes) return fail(NCAST_INVALID_ARGUMENT, "numa: there is no node %d", node);
  constexpr int word_bits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, max_nodes / word_bits> nodes = {};
  nodes[static_cast<size_t>(node / word_bits)] |= 1ul << (node % word_bits);
  const int number = policy == NodePolicy::preferred ? prefer_policy : bind_policy;
  if (syscall(SYS_mbind, data, bytes, number, nodes.data(), max_nodes + 1, 0) == 0) return NCAST_OK;
  if (errno == EINVAL) return fail(NCAST_INVALID_ARGUMENT, "numa: there is no node %d with memory", node);
  return fail(NCAST_SYSTEM_ERROR, "cannot place memory on NUMA node %d: %s", node, std::strerror(errno));
}

}  // namespace narrowcast::bootstrap
