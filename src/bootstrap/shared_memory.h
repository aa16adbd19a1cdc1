// Segments of POSIX shared memory that only their user can access. They are published under a name atomically, and a
// sweep removes those whose owners have died.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bootstrap/process.h"
#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

// A mapped range of a segment behind its original end. The destructor unmaps it.
class SharedRange {
 public:
  SharedRange() = default;
  SharedRange(const SharedRange&) = delete;
  SharedRange& operator=(const SharedRange&) = delete;
  ~SharedRange() { reset(); }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void reset();

 private:
  friend class SharedMemory;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// A mapped segment, readable and writable. The destructor unmaps it.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { reset(); }

  // Creates a zeroed segment of mode 0600 with a temporary name. Its pages are not allocated yet: allocate() does that.
  ncast_status create(size_t bytes);

  // Opens the segment published as `name`. If there is none, *found is false and the status NCAST_OK. Error:
  // SYSTEM_ERROR, for example if another user created it or has access to it, or if it does not begin with
  // SegmentOwners.
  ncast_status open(const std::string& name, bool* found);

  // Allocates the pages of a range, so that a full file system is an error here and not a SIGBUS later. The pages are
  // huge if /dev/shm is mounted with huge=advise, within_size or always.
  ncast_status allocate(size_t offset_bytes, size_t length_bytes);

  // Allocates and maps a range behind the end of the segment, which grows if necessary. The offset is a multiple of the
  // page size.
  ncast_status map_range(size_t offset_bytes, size_t length_bytes, SharedRange* range);

  // Gives a created segment its name. If another segment has the name, *taken is true and the status NCAST_OK.
  ncast_status publish(const std::string& name, bool* taken);

  // Removes the temporary name of a created segment and keeps the mapping. publish() also does this.
  void drop_temporary_name();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Unmaps the segment and removes its temporary name, if any.
  void reset();

 private:
  ncast_status map(size_t bytes);

  int file_ = -1;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::string temporary_name_;
};

// Every published name starts with this.
inline constexpr char segment_prefix[] = "narrowcast.";

void unlink_segment(const std::string& name);

// The start of every published segment, which a sweep reads. The layout is the same in all versions of the library.
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

// Removes segments that killed processes left behind: published ones without a living owner, and temporary ones of dead
// processes. Segments of other users and of other pid namespaces stay. Returns the number of removed segments.
int sweep_stale_segments();

// Fills bytes from the kernel's random source.
ncast_status random_bytes(void* bytes, size_t count);

}  // namespace narrowcast::bootstrap
