// Registered user memory, to which other ranks' kernels write directly.
#include <algorithm>
#include <memory>

#include "executor/cuda/with_communicator.h"
#include "narrowcast/comm.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {

namespace {

bool is_rejection(ncast_status status) { return status == NCAST_INVALID_ARGUMENT || status == NCAST_UNSUPPORTED; }

}  // namespace

static_assert(NCAST_MOST_REGISTERED == channel::max_regions);

ncast_status Communicator::set_region(uint32_t region, const channel::RegisteredMemory* memory) {
  char* addresses[channel::max_gpu_ranks] = {};
  for (int peer = 0; memory != nullptr && peer < ranks(); ++peer) addresses[peer] = memory->of(peer);
  const cudaError_t error = copy_synchronously(state_->direct_writes.regions[region], addresses, sizeof addresses);
  return error == cudaSuccess ? NCAST_OK
                              : set_last_error(channel::cuda_failure("updating the registered memory", error));
}

ncast_status Communicator::register_memory(void* memory, size_t bytes, uint32_t* region) {
  const std::lock_guard lock(sharing_);
  const device::DeviceGuard device_guard(device_);
  if (ncast_status status = check_error()) return status;
  if (ncast_status status = check_one_host("kernels cannot write to registered memory")) return status;
  if (over_host()) return fail(NCAST_UNSUPPORTED, "the GPUs of the ranks cannot access each other's memory");
  const auto first_free = std::find(regions_.begin() + 1, regions_.end(), nullptr);
  if (first_free == regions_.end())
    return fail(NCAST_UNSUPPORTED, "%u regions are registered, which is the maximum", channel::max_regions);
  std::unique_ptr<channel::RegisteredMemory> registered;
  if (ncast_status status =
          channel::RegisteredMemory::create(*rendezvous_, static_cast<char*>(memory), bytes, &registered)) {
    // If all ranks rejected the memory, the communicator remains usable.
    return rendezvous_->check_failure() == NCAST_OK && is_rejection(status) ? status : set_last_error(status);
  }
  *region = static_cast<uint32_t>(first_free - regions_.begin());
  if (ncast_status status = set_region(*region, registered.get())) return status;
  const std::lock_guard launching(launching_);
  *first_free = std::move(registered);
  ++registered_;
  return NCAST_OK;
}

ncast_status Communicator::check_region(uint32_t region) const {
  if (region >= 1 && region <= channel::max_regions && regions_[region] != nullptr) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT, "region %u is not registered", region);
}

ncast_status Communicator::deregister_memory(uint32_t region) {
  const std::lock_guard lock(sharing_);
  const device::DeviceGuard device_guard(device_);
  if (ncast_status status = check_region(region)) return status;
  std::unique_ptr<channel::RegisteredMemory> registered;
  {
    const std::lock_guard launching(launching_);
    // The calls of a rank run in order, so the last call is enough.
    if (const cudaError_t error = order_.any_eager() ? cudaEventSynchronize(order_.last_eager()) : cudaSuccess;
        error != cudaSuccess)
      return set_last_error(channel::cuda_failure("waiting for the calls that use the memory", error));
    registered = std::move(regions_[region]);
    --registered_;
  }
  registered.reset();
  if (ncast_status status = set_region(region, nullptr)) return status;
  return check_error();
}

channel::RegionPlace Communicator::region_place(const void* values, uint64_t bytes) const {
  for (uint32_t region = 1; region < regions_.size(); ++region)
    if (regions_[region] != nullptr && regions_[region]->holds(values, bytes))
      return {region, regions_[region]->offset_of(values)};
  return {0, 0};
}

}  // namespace narrowcast::executor::cuda

using namespace narrowcast::executor::cuda;

extern "C" {

ncast_status ncast_comm_register(ncast_comm* comm, void* memory, size_t bytes, uint32_t* region) {
  return with_communicator("ncast_comm_register", comm, [&](Communicator& communicator) {
    if (region == nullptr) return null_argument("region");
    *region = 0;
    if (ncast_status status = communicator.check_alone()) return status;
    return communicator.register_memory(memory, bytes, region);
  });
}

ncast_status ncast_comm_deregister(ncast_comm* comm, uint32_t region) {
  return with_communicator("ncast_comm_deregister", comm,
                           [&](Communicator& communicator) { return communicator.deregister_memory(region); });
}

}  // extern "C"
