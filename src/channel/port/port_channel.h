// The host side of a set of ports: owns the memory that kernels and the proxy share, the transport, and the service.
#pragma once

#include <memory>
#include <optional>

#include "channel/port/copy_engines.h"
#include "channel/port/kernel_ports.h"
#include "channel/port/service.h"

namespace narrowcast::channel {

class PortChannel {
 public:
  // The device must be current. Synchronizes with it. peers: of the communicator. Errors: CUDA_ERROR.
  static ncast_status create(PortBounds bounds, CopyEngines::Memory memory, const Peers& peers,
                             std::unique_ptr<PortChannel>* result);
  // Kernels and proxy must no longer use it.
  ~PortChannel();

  PortService* service() { return &*service_; }
  const KernelPorts& kernel_ports() const { return kernel_ports_; }

 private:
  PortChannel() = default;

  KernelPorts kernel_ports_ = {};
  std::unique_ptr<CopyEngines> engines_;
  std::optional<PortService> service_;
};

}  // namespace narrowcast::channel
