// Decides, at the first call of each NCCL function, where its trampoline jumps from then on.
#include <atomic>

#include "nccl/entry/handlers.h"
#include "nccl/libraries/real_nccl.h"
#include "nccl/report/log.h"
#include "nccl/settings/settings.h"

extern "C" {
// One slot per export, in the order of exports.inc; trampolines.S jumps through them.
extern std::atomic<void*> narrowcast_nccl_slots[];
__attribute__((visibility("default"))) void* narrowcast_nccl_resolve(std::atomic<void*>* slot);
}

using namespace narrowcast::nccl;

void* narrowcast_nccl_resolve(std::atomic<void*>* slot) {
  const auto index = static_cast<size_t>(slot - narrowcast_nccl_slots);
  const auto function = static_cast<Function>(index);
  // Not stored in the slot: later calls go to the function itself.
  if (void* const stub = stub_while_loading(function)) return stub;
  const RealNccl& nccl = real_nccl();
  if (!nccl.has[index] && !nccl.path.empty())
    log(Level::warn, "NCCL %s has no %s: calls to it fail", version_text(nccl.version).c_str(), exports[index].name);
  const bool may_handle = nccl.has[index] && nccl.is_supported && !settings().off_everything;
  void* const own = may_handle ? handler(function) : nullptr;
  void* const target = own != nullptr ? own : nccl.functions[index];
  slot->store(target, std::memory_order_relaxed);
  return target;
}
