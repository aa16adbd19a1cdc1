#pragma once

namespace narrowcast::executor::cuda {

// Makes a device current for the lifetime of the guard, then restores the previous device, even if there was none.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace narrowcast::executor::cuda
