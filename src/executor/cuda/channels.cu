// The functions of narrowcast/channel.h for memory and channels that users' kernels use.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "channel/memory/kernel_channels.h"
#include "channel/packet/packet_rings.h"
#include "executor/cuda/with_communicator.h"
#include "narrowcast/channel.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {
namespace {

constexpr uint32_t max_rings = 4096;
// An IPC handle maps memory in units of this size. A smaller allocation would expose its neighbours.
constexpr size_t mapping_bytes = size_t{2} << 20;

}  // namespace

// Used by collective functions: publishes the error, because the other ranks may be waiting.
ncast_status Communicator::set_last_error(ncast_status status) {
  const std::string message = ncast_last_error();
  set_error(status, message.c_str());
  return fail(status, "%s", message.c_str());
}

ncast_status Communicator::allocate_shared(size_t bytes, char** own) {
  const std::lock_guard lock(sharing_);
  const device::DeviceGuard device_guard(device_);
  if (ncast_status status = check_error()) return status;
  if (ncast_status status = check_one_host("kernels share no memory")) return status;
  std::unique_ptr<channel::PeerMemory> memory;
  const size_t mapped = (bytes + mapping_bytes - 1) / mapping_bytes * mapping_bytes;
  if (ncast_status status = channel::PeerMemory::create(*rendezvous_, topology_.place, mapped, {}, &memory))
    return set_last_error(status);
  *own = memory->of(rank());
  shared_.push_back({std::move(memory), bytes});
  return NCAST_OK;
}

ncast_status Communicator::find_shared(const void* own, size_t* index) const {
  for (*index = 0; *index < shared_.size(); ++*index)
    if (shared_[*index].memory->of(rank()) == own) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT, "%p was not allocated by this communicator", own);
}

ncast_status Communicator::free_shared(const void* own) {
  const std::lock_guard lock(sharing_);
  const device::DeviceGuard device_guard(device_);
  size_t index = 0;
  if (ncast_status status = find_shared(own, &index)) return status;
  for (const Ports& ports : ports_)
    if (std::ranges::find(ports.memory, own) != ports.memory.end())
      return fail(NCAST_INVALID_ARGUMENT, "%p is used by ports; destroy them first", own);
  shared_.erase(shared_.begin() + static_cast<std::ptrdiff_t>(index));
  return NCAST_OK;
}

ncast_status Communicator::check_peer(int peer) const {
  if (peer >= 0 && peer < ranks()) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT, "rank is %d, but the communicator has ranks 0 to %d", peer, ranks() - 1);
}

ncast_status Communicator::shared_address(const void* own, int peer, char** address) {
  if (ncast_status status = check_peer(peer)) return status;
  const std::lock_guard lock(sharing_);
  size_t index = 0;
  if (ncast_status status = find_shared(own, &index)) return status;
  *address = shared_[index].memory->of(peer);
  return NCAST_OK;
}

ncast_status Communicator::registered_address(uint32_t region, int peer, char** address) {
  if (ncast_status status = check_peer(peer)) return status;
  const std::lock_guard lock(sharing_);
  if (ncast_status status = check_region(region)) return status;
  *address = regions_[region]->of(peer);
  return NCAST_OK;
}

ncast_status Communicator::create_channels(uint32_t rings, uint32_t slot_bytes, ncast_channels* channels) {
  channel::KernelChannels kernel_channels;
  kernel_channels.layout = channel::ChannelLayout(0, ranks(), rings, SIZE_MAX);
  kernel_channels.packet_bytes = (over_host() ? channel::narrow_packets : channel::wide_packets).bytes;
  char* own = nullptr;
  if (ncast_status status = allocate_shared(channel::PacketRings(kernel_channels.layout, ranks()).bytes(), &own))
    return status;
  kernel_channels.peers = peers_;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (ncast_status status = shared_address(own, peer, &kernel_channels.peers.scratch[peer])) return status;
  }
  {
    const std::lock_guard lock(sharing_);
    const uint32_t settings[2] = {rings, slot_bytes};
    std::vector<uint32_t> all(2 * static_cast<size_t>(ranks()));
    if (ncast_status status = rendezvous_->all_gather(settings, sizeof settings, all.data()))
      return set_last_error(status);
    for (int peer = 0; peer < ranks(); ++peer) {
      const uint32_t* other = &all[2 * static_cast<size_t>(peer)];
      if (other[0] == rings && other[1] == slot_bytes) continue;
      return set_last_error(fail(NCAST_MISMATCH,
                                 "rank %d requests %u rings of %u bytes, but rank %d requests %u of %u bytes", peer,
                                 other[0], other[1], rank(), rings, slot_bytes));
    }
  }
  *channels = {rank(), ranks(), rings, slot_bytes, {}};
  std::memcpy(channels->reserved, &kernel_channels, sizeof kernel_channels);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda

using namespace narrowcast::executor::cuda;
using narrowcast::fail;

extern "C" {

ncast_status ncast_channels_create(ncast_comm* comm, uint32_t rings, uint32_t slot_bytes, ncast_channels* channels) {
  return with_communicator("ncast_channels_create", comm, [&](Communicator& communicator) {
    if (channels == nullptr) return null_argument("channels");
    if (rings < 1 || rings > max_rings)
      return fail(NCAST_INVALID_ARGUMENT, "rings is %u, not 1 to %u", rings, max_rings);
    if (slot_bytes != NCAST_SLOT_BYTES && slot_bytes != 2 * NCAST_SLOT_BYTES)
      return fail(NCAST_INVALID_ARGUMENT, "slot_bytes is %u, not %d or %d", slot_bytes, NCAST_SLOT_BYTES,
                  2 * NCAST_SLOT_BYTES);
    return communicator.create_channels(rings, slot_bytes, channels);
  });
}

ncast_status ncast_channels_destroy(ncast_comm* comm, const ncast_channels* channels) {
  return with_communicator("ncast_channels_destroy", comm, [&](Communicator& communicator) {
    if (channels == nullptr) return null_argument("channels");
    narrowcast::channel::KernelChannels kernel_channels;
    std::memcpy(&kernel_channels, channels->reserved, sizeof kernel_channels);
    if (channels->rank != communicator.rank() || channels->ranks != communicator.ranks())
      return fail(NCAST_INVALID_ARGUMENT, "the channels do not belong to this communicator");
    return communicator.free_shared(kernel_channels.peers.scratch[channels->rank]);
  });
}

ncast_status ncast_mem_alloc(ncast_comm* comm, size_t bytes, void** own) {
  return with_communicator("ncast_mem_alloc", comm, [&](Communicator& communicator) {
    if (own == nullptr) return null_argument("own");
    if (bytes == 0 || bytes > SIZE_MAX / 2) return fail(NCAST_INVALID_ARGUMENT, "bytes is %zu", bytes);
    char* memory = nullptr;
    const ncast_status status = communicator.allocate_shared(bytes, &memory);
    *own = memory;
    return status;
  });
}

ncast_status ncast_mem_peer(ncast_comm* comm, const void* own, int rank, void** address) {
  return with_communicator("ncast_mem_peer", comm, [&](Communicator& communicator) {
    if (address == nullptr) return null_argument("address");
    char* found = nullptr;
    const ncast_status status = communicator.shared_address(own, rank, &found);
    *address = found;
    return status;
  });
}

ncast_status ncast_region_peer(ncast_comm* comm, uint32_t region, int rank, void** address) {
  return with_communicator("ncast_region_peer", comm, [&](Communicator& communicator) {
    if (address == nullptr) return null_argument("address");
    char* found = nullptr;
    const ncast_status status = communicator.registered_address(region, rank, &found);
    *address = found;
    return status;
  });
}

ncast_status ncast_mem_free(ncast_comm* comm, void* own) {
  return with_communicator("ncast_mem_free", comm,
                           [&](Communicator& communicator) { return communicator.free_shared(own); });
}

}  // extern "C"
