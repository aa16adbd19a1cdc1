// File descriptors that stay in this process. A copy in a child would keep a connection open when its owner dies, and
// nobody would learn of the death.
#pragma once

#include <mutex>

namespace narrowcast::bootstrap {

// While it is held no thread of this process forks, so that a child finds whole what it guards. For moments.
std::unique_lock<std::mutex> hold_off_forks();

// Closed at the end, and at once in a forked child, where it is -1 from then on. One thread at a time.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  // Takes what `make` returns: a descriptor with O_CLOEXEC, or -1 with errno. `make` must not block. False, and errno,
  // when there is none.
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
