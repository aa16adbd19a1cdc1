// Reads of mapped files whose pages cannot be read any more: a file was truncated, or its disk failed.
#pragma once

#include <atomic>
#include <cstdint>

namespace narrowcast::store {

// A mapped file, which is watched until the end of the object.
class WatchedMapping {
 public:
  WatchedMapping(const uint8_t* memory, uint64_t bytes, int file);
  ~WatchedMapping();
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

  // Whether pages could not be read. They are zeros since.
  bool has_lost_pages() const;

  struct Range;

 private:
  Range* range_;
};

// Such pages become zeros in this scope, on all threads, instead of ending the process with SIGBUS. The handler of the
// signal is replaced in the meantime; the previous one gets the signals for all other memory.
class BusErrorScope {
 public:
  BusErrorScope();
  ~BusErrorScope();
  BusErrorScope(const BusErrorScope&) = delete;
  BusErrorScope& operator=(const BusErrorScope&) = delete;
};

}  // namespace narrowcast::store
