// File descriptors that forked children do not inherit. A copy in a child would keep a connection open after its owner
// died, and peers would not notice the death.
#pragma once

#include <mutex>

namespace narrowcast::bootstrap {

// While the lock is held no thread of this process forks, so a child finds the guarded data in a consistent state. Hold
// it only briefly.
std::unique_lock<std::mutex> hold_off_forks();

// Closed by the destructor, and immediately in a forked child, where it becomes -1. One thread at a time.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  // Owns the result of `make`: a descriptor with O_CLOEXEC, or -1 with errno set, which makes this return false. `make`
  // must not block.
  template <typename Make>
  bool open(Make&& make) {
    close();
    const auto no_fork = hold_off_forks();
    fd_ = make();
    if (fd_ >= 0) enlist();
    return fd_ >= 0;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  friend struct DescriptorList;
  void enlist();

  int fd_ = -1;
  Descriptor* next_ = nullptr;
  Descriptor* previous_ = nullptr;
};

}  // namespace narrowcast::bootstrap
