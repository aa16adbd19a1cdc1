// Segments of POSIX shared memory: made private to the user, published under a name in one step, swept when their
// owners are gone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bootstrap/process.h"
#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

// A mapped segment, readable and writable. Unmaps at the end.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { reset(); }

  // A new segment of zeros, mode 0600, that has a temporary name only. Its pages exist when allocate() has made them.
  ncast_status create(size_t bytes);

  // The segment published as `name`. *found is false, and the status NCAST_OK, when there is none.
  ncast_status open(const std::string& name, bool* found);

  // Makes pages for a range, so that a full file system is an error here and not a SIGBUS later.
  ncast_status allocate(size_t offset_bytes, size_t length_bytes);

  // Gives a created segment its name. *taken is true, and the status NCAST_OK, when another segment has it.
  ncast_status publish(const std::string& name, bool* taken);

  // Drops the temporary name of a created segment; the mapping stays. publish() does so too.
  void drop_temporary_name();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Unmaps, and drops the temporary name if there is still one.
  void reset();

 private:
  ncast_status map(const char* name);

  int file_ = -1;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::string temporary_name_;
};

// Every published name starts with this.
inline constexpr char segment_prefix[] = "narrowcast.";

void unlink_segment(const std::string& name);

// At the head of every published segment, so that a sweeper needs to know nothing else of it.
struct SegmentOwners {
  static constexpr int capacity = 64;
  enum State : uint64_t { absent = 0, claimed = 1, joined = 2, left = 3 };
  struct Owner {
    std::atomic<uint64_t> state;
    ProcessIdentity process;  // written before state becomes `joined`
  };
  uint64_t magic;
  Owner owner[capacity];
};
inline constexpr uint64_t segment_magic = 0x3130747361636e77;  // "wncast01"

// Removes what killed processes left behind: segments none of whose owners lives, and those that were never published.
// Segments of other users and of other pid namespaces are left alone. Returns how many went.
int sweep_stale_segments();

// Fills bytes from the kernel's random source.
ncast_status random_bytes(void* bytes, size_t count);

}  // namespace narrowcast::bootstrap
