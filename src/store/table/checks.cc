#include "store/table/checks.h"

#include <algorithm>
#include <utility>

#include "store/file/checksum.h"
#include "store/file/header.h"

namespace narrowcast::store {

void SegmentChecks::reset(const file::Header& header, std::vector<uint64_t> checksums) {
  checksums_ = std::move(checksums);
  states_ = std::make_unique<std::atomic<uint8_t>[]>(checksums_.size());
  for (uint32_t i = 0; i < file::section_count; ++i) {
    first_[i] = file::first_checksum(header, i);
    bytes_[i] = header.sections[i].bytes;
  }
  active_ = true;
}

uint64_t SegmentChecks::bytes_of(uint32_t section, uint64_t segment) const {
  return std::min(file::segment_bytes, bytes_[section] - segment * file::segment_bytes);
}

bool SegmentChecks::verify(uint32_t section, uint64_t segment, const uint8_t* bytes) {
  const uint64_t number = first_[section] + segment;
  const bool matches = file::checksum(bytes, bytes_of(section, segment)) == checksums_[number];
  if (states_[number].exchange(matches ? good : damaged_state) != damaged_state && !matches) ++damaged_;
  return matches;
}

bool SegmentChecks::is_good(uint32_t section, uint64_t segment) {
  // Space for rows that were appended is not in the file.
  if (segment * file::segment_bytes >= bytes_[section]) return true;
  const uint8_t state = states_[first_[section] + segment].load(std::memory_order_relaxed);
  if (state == unknown) return verify(section, segment, bases_[section] + segment * file::segment_bytes);
  return state == good;
}

void SegmentChecks::forget() {
  for (size_t i = 0; i < checksums_.size(); ++i) states_[i] = unknown;
  damaged_ = 0;
}

void SegmentChecks::deactivate() {
  active_ = false;
  checksums_.clear();
  states_.reset();
}

}  // namespace narrowcast::store
