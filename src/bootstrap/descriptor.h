// File descriptors that forked children do not keep. A copy in a child would keep a connection open after the owner has
// died, and peers would not detect the death.
#pragma once

#include <mutex>

namespace narrowcast::bootstrap {

// While the lock is held, fork() in this process waits, so a child sees data guarded by it in a consistent state. Hold
// it only briefly.
std::unique_lock<std::mutex> block_forks();

// Closed by the destructor. In a forked child it is closed right after the fork and becomes -1. Used by one thread at a
// time.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  // Takes ownership of the result of `make()`, which must not block: a descriptor with O_CLOEXEC, or -1 with errno set.
  // Returns false in the latter case.
  template <typename Make>
  bool open(Make&& make) {
    close();
    const auto fork_lock = block_forks();
    fd_ = make();
    if (fd_ >= 0) add_to_list();
    return fd_ >= 0;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  friend struct DescriptorList;
  void add_to_list();

  int fd_ = -1;
  Descriptor* next_ = nullptr;
  Descriptor* previous_ = nullptr;
};

}  // namespace narrowcast::bootstrap
