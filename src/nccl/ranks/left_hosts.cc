#include "nccl/ranks/left_hosts.h"

#include <mutex>
#include <set>

namespace narrowcast::nccl {
namespace {

struct Left {
  std::mutex mutex;
  std::set<uint64_t> hosts;
  bool all = false;
};

Left& left() {
  static Left& the = *new Left;  // never freed: calls may come until the process ends
  return the;
}

}  // namespace

void leave_hosts(uint64_t hosts) {
  const std::lock_guard lock(left().mutex);
  left().hosts.insert(hosts);
}

void leave_all_hosts() {
  const std::lock_guard lock(left().mutex);
  left().all = true;
}

bool are_left(uint64_t hosts) {
  const std::lock_guard lock(left().mutex);
  return left().all || left().hosts.contains(hosts);
}

}  // namespace narrowcast::nccl
