// The host's side of ports: what their kernels and the proxy share, and what serves them.
#pragma once

#include <memory>
#include <optional>

#include "channel/port/copy_engines.h"
#include "channel/port/kernel_ports.h"
#include "channel/port/service.h"

namespace narrowcast::channel {

class PortChannel {
 public:
  // With the device current; waits for it. peers: the communicator's. Errors: CUDA_ERROR.
  static ncast_status create(PortBounds bounds, CopyEngines::Memory memory, const Peers& peers,
                             std::unique_ptr<PortChannel>* result);
  // No kernel and no proxy uses it any more.
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
