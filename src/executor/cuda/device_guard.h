#pragma once

namespace narrowcast::executor::cuda {

// Makes a device current while it lives; then what the thread had before is current again, and be it no device.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace narrowcast::executor::cuda
