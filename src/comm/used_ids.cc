#include "comm/used_ids.h"

#include <set>

#include "bootstrap/descriptor.h"

namespace narrowcast::comm {
namespace {

// Guarded by block_forks(). Never destroyed: threads may outlive static objects.
std::set<bootstrap::WorldId>& used_ids() {
  static auto* const ids = new std::set<bootstrap::WorldId>;
  return *ids;
}

}  // namespace

bool is_used(const bootstrap::WorldId& id) {
  const auto fork_lock = bootstrap::block_forks();
  return used_ids().contains(id);
}

void mark_used(const bootstrap::WorldId& id) {
  const auto fork_lock = bootstrap::block_forks();
  used_ids().insert(id);
}

}  // namespace narrowcast::comm
