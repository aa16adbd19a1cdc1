// Which segments of a table file are damaged. Segments that nobody has used are verified when they are used first.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "store/file/layout.h"

namespace narrowcast::store {

class SegmentChecks {
 public:
  // header, checksums: of the file. They must have been checked.
  void reset(const file::Header& header, std::vector<uint64_t> checksums);
  // Where the bytes of a segmented section are now.
  void set_base(uint32_t section, const uint8_t* base) { bases_[section] = base; }

  // Whether bytes [begin, end) of a section are as they were written. Any number of threads may ask.
  bool are_good(uint32_t section, uint64_t begin, uint64_t end) {
    if (!active_) return true;
    for (uint64_t i = begin / file::segment_bytes; i * file::segment_bytes < end; ++i) {
      if (!is_good(section, i)) return false;
    }
    return true;
  }
  // Verifies one segment of a section, whose bytes may be somewhere else than the base, and notes the result.
  bool verify(uint32_t section, uint64_t segment, const uint8_t* bytes);
  // The bytes of a segment.
  uint64_t bytes_of(uint32_t section, uint64_t segment) const;

  // The segments that are known to be damaged.
  uint64_t damaged() const { return damaged_; }
  // All segments are verified again when they are used next.
  void forget();
  // Ends the checks: all segments count as good.
  void deactivate();

 private:
  enum State : uint8_t { unknown, good, damaged_state };
  bool is_good(uint32_t section, uint64_t segment);

  bool active_ = false;
  std::array<uint64_t, file::section_count> first_ = {}, bytes_ = {};
  std::array<const uint8_t*, file::section_count> bases_ = {};
  std::vector<uint64_t> checksums_;
  std::unique_ptr<std::atomic<uint8_t>[]> states_;
  std::atomic<uint64_t> damaged_{0};
};

}  // namespace narrowcast::store
