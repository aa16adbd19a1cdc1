#include <cuda_runtime.h>

#include <algorithm>
#include <utility>

#include "channel/peer/peer_memory.h"
#include "channel/peer/zeroed_memory.h"
#include "channel/port/port_channel.h"

namespace narrowcast::channel {

ncast_status PortChannel::create(PortBounds bounds, CopyEngines::Memory memory, const Peers& peers,
                                 std::unique_ptr<PortChannel>* result) {
  std::unique_ptr<PortChannel> channel(new PortChannel);
  KernelPorts& kernel = channel->kernel_ports_;
  kernel.peers = peers;
  std::ranges::copy(memory.semaphores, kernel.peers.scratch);
  const size_t waited_bytes = size_t{bounds.ranks} * bounds.ports * sizeof(uint64_t);
  cudaError_t error = cudaHostAlloc(reinterpret_cast<void**>(&kernel.fifo), sizeof *kernel.fifo, cudaHostAllocPortable);
  if (error == cudaSuccess) {
    *kernel.fifo = {};
    error = allocate_zeroed(&kernel.state, sizeof *kernel.state);
  }
  if (error == cudaSuccess) error = allocate_zeroed(&kernel.waited, waited_bytes);
  if (error != cudaSuccess) return cuda_failure("setting up ports", error);
  if (ncast_status status = CopyEngines::create(std::move(memory), &channel->engines_)) return status;
  channel->service_.emplace(std::move(bounds), *kernel.fifo, *channel->engines_);
  *result = std::move(channel);
  return NCAST_OK;
}

PortChannel::~PortChannel() {
  engines_.reset();
  cudaFree(kernel_ports_.waited);
  cudaFree(kernel_ports_.state);
  if (kernel_ports_.fifo != nullptr) cudaFreeHost(kernel_ports_.fifo);
}

}  // namespace narrowcast::channel
