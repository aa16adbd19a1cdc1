#include "bootstrap/descriptor.h"

#include <pthread.h>
#include <unistd.h>

namespace narrowcast::bootstrap {

// All open descriptors, in an intrusive list: a forked child of a multi-threaded process must not use the heap.
struct DescriptorList {
  std::mutex mutex;
  Descriptor* first = nullptr;

  void close_all() {
    while (first != nullptr) {
      Descriptor* descriptor = first;
      first = descriptor->next_;
      ::close(descriptor->fd_);
      descriptor->fd_ = -1;
      descriptor->next_ = descriptor->previous_ = nullptr;
    }
  }

  static DescriptorList& get() {
    // Never destroyed: threads of the library may outlive static objects.
    static DescriptorList* const list = [] {
      auto* made = new DescriptorList;
      pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                     [] {
                       get().close_all();
                       get().mutex.unlock();
                     });
      return made;
    }();
    return *list;
  }
};

std::unique_lock<std::mutex> block_forks() { return std::unique_lock(DescriptorList::get().mutex); }

void Descriptor::add_to_list() {
  DescriptorList& list = DescriptorList::get();
  previous_ = nullptr;
  next_ = list.first;
  if (next_ != nullptr) next_->previous_ = this;
  list.first = this;
}

void Descriptor::close() {
  if (fd_ < 0) return;
  const auto fork_lock = block_forks();
  (previous_ != nullptr ? previous_->next_ : DescriptorList::get().first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  next_ = previous_ = nullptr;
  ::close(fd_);
  fd_ = -1;
}

}  // namespace narrowcast::bootstrap
