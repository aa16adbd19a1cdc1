// The functions of narrowcast/channel.h for ports that users' kernels use.
#include <cuda_runtime.h>

#include <cinttypes>
#include <cstring>
#include <string>
#include <utility>

#include "executor/cuda/communicator.h"
#include "executor/cuda/with_communicator.h"
#include "narrowcast/channel.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {
namespace {

using channel::PortRequest;

// Exchanged by the ranks, because all must request the same ports.
struct PortSettings {
  uint32_t ports, regions;
  uint64_t memory[NCAST_MOST_REGIONS];  // index of each region in shared_
};

}  // namespace

ncast_status Communicator::create_ports(uint32_t ports, const std::vector<const void*>& memory, ncast_ports* result) {
  std::vector<size_t> indices;
  {
    const std::lock_guard lock(sharing_);
    for (const void* own : memory) {
      if (ncast_status status = find_shared(own, &indices.emplace_back())) return status;
      if (const size_t bytes = shared_[indices.back()].bytes; bytes >= PortRequest::offset_limit)
        return fail(NCAST_INVALID_ARGUMENT, "%p has %zu bytes, but regions of ports must be smaller than %" PRIu64, own,
                    bytes, PortRequest::offset_limit);
    }
  }
  Ports made{nullptr, memory};
  if (ncast_status status = allocate_shared(channel::CopyEngines::semaphore_bytes(ranks(), ports), &made.semaphores))
    return status;
  const std::lock_guard lock(sharing_);
  const device::DeviceGuard device_guard(device_);
  ncast_status status = agree_on_ports(ports, indices);
  if (status == NCAST_OK) status = set_up_ports(ports, indices, &made);
  if (status == NCAST_OK) status = rendezvous_->barrier();
  ports_.reserve(ports_.size() + 1);  // push_back() must not fail after the proxy serves the ports
  if (status == NCAST_OK) status = start_proxy(made.channel->service());
  if (status != NCAST_OK) return set_last_error(status);
  *result = {rank(), ranks(), ports, static_cast<uint32_t>(memory.size()), {}};
  std::memcpy(result->reserved, &made.channel->kernel_ports(), sizeof made.channel->kernel_ports());
  ports_.push_back(std::move(made));
  return NCAST_OK;
}

ncast_status Communicator::agree_on_ports(uint32_t ports, const std::vector<size_t>& memory) {
  PortSettings own = {ports, static_cast<uint32_t>(memory.size()), {}};
  std::ranges::copy(memory, own.memory);
  std::vector<PortSettings> all(static_cast<size_t>(ranks()));
  if (ncast_status status = rendezvous_->all_gather(&own, sizeof own, all.data())) return status;
  for (int peer = 0; peer < ranks(); ++peer) {
    const PortSettings& other = all[static_cast<size_t>(peer)];
    if (other.ports != own.ports || other.regions != own.regions)
      return fail(NCAST_MISMATCH, "rank %d requests %u ports and %u regions, but rank %d requests %u and %u", peer,
                  other.ports, other.regions, rank(), own.ports, own.regions);
    for (uint32_t region = 0; region < own.regions; ++region)
      if (other.memory[region] != own.memory[region])
        return fail(NCAST_MISMATCH, "region %u on rank %d and on rank %d are from different calls of ncast_mem_alloc",
                    region, peer, rank());
  }
  return NCAST_OK;
}

ncast_status Communicator::set_up_ports(uint32_t ports, const std::vector<size_t>& memory, Ports* result) {
  const auto region_of = [&](const channel::PeerMemory& shared) {
    channel::CopyEngines::Region region = {};
    for (int peer = 0; peer < ranks(); ++peer) region[static_cast<size_t>(peer)] = shared.of(peer);
    return region;
  };
  size_t semaphores = 0;
  if (ncast_status status = find_shared(result->semaphores, &semaphores)) return status;
  channel::PortBounds bounds{rank(), static_cast<uint32_t>(ranks()), ports, {}, bootstrap::Limit{timeout_seconds_}};
  channel::CopyEngines::Memory reached{rank(), ranks(), ports, {}, region_of(*shared_[semaphores].memory)};
  for (const size_t index : memory) {
    bounds.region_bytes.push_back(shared_[index].bytes);
    reached.regions.push_back(region_of(*shared_[index].memory));
  }
  return channel::PortChannel::create(std::move(bounds), std::move(reached), peers_, &result->channel);
}

ncast_status Communicator::start_proxy(channel::PortService* service) {
  if (proxy_ == nullptr) {
    const auto set_up = [device = device_] {
      cudaSetDevice(device);
      // Calls of this thread are not captured and do not invalidate captures of other threads.
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      cudaThreadExchangeStreamCaptureMode(&mode);
    };
    const auto failed = [this](ncast_status status, const char* message) { set_error(status, message); };
    proxy_ = std::make_unique<channel::PortProxy>(&control_->stop, set_up, failed);
  }
  return proxy_->add(service);
}

ncast_status Communicator::destroy_ports(const ncast_ports& ports) {
  channel::KernelPorts kernel_ports;
  std::memcpy(&kernel_ports, ports.reserved, sizeof kernel_ports);
  char* semaphores = nullptr;
  bool is_complete = false;
  {
    const std::lock_guard lock(sharing_);
    const device::DeviceGuard device_guard(device_);
    const auto found = std::ranges::find_if(
        ports_, [&](const Ports& made) { return made.channel->kernel_ports().fifo == kernel_ports.fifo; });
    if (found == ports_.end()) return fail(NCAST_INVALID_ARGUMENT, "the ports do not belong to this communicator");
    is_complete = proxy_->remove(found->channel->service());
    semaphores = found->semaphores;
    ports_.erase(found);
  }
  if (ncast_status status = free_shared(semaphores)) return status;
  return is_complete ? NCAST_OK : check_error();
}

}  // namespace narrowcast::executor::cuda

using namespace narrowcast::executor::cuda;
using narrowcast::fail;

extern "C" {

ncast_status ncast_ports_create(ncast_comm* comm, uint32_t ports, void* const* memory, uint32_t regions,
                                ncast_ports* result) {
  return with_communicator("ncast_ports_create", comm, [&](Communicator& communicator) {
    if (result == nullptr) return null_argument("result");
    if (memory == nullptr && regions != 0) return null_argument("memory");
    if (ports < 1 || ports > NCAST_MOST_PORTS)
      return fail(NCAST_INVALID_ARGUMENT, "ports is %u, not 1 to %d", ports, NCAST_MOST_PORTS);
    if (regions > NCAST_MOST_REGIONS)
      return fail(NCAST_INVALID_ARGUMENT, "regions is %u, not 0 to %d", regions, NCAST_MOST_REGIONS);
    return communicator.create_ports(ports, std::vector<const void*>(memory, memory + regions), result);
  });
}

ncast_status ncast_ports_destroy(ncast_comm* comm, const ncast_ports* ports) {
  return with_communicator("ncast_ports_destroy", comm, [&](Communicator& communicator) {
    if (ports == nullptr) return null_argument("ports");
    return communicator.destroy_ports(*ports);
  });
}

}  // extern "C"
