// The memory of an open table: a private mapping, shared memory, or the pages of a file.
#pragma once

#include <cstdint>

#include "bootstrap/shared_memory.h"
#include "narrowcast/types.h"

namespace narrowcast::store {

// A mapped range. The destructor unmaps it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  // Zeroed pages of this process, which are allocated when they are first used.
  ncast_status allocate(uint64_t bytes);
  // The pages of a file, read-only.
  ncast_status map_file(int file, uint64_t bytes);

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  void reset();

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace narrowcast::store
