// Changed table files with valid checksums.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "store/file/checksum.h"
#include "store/file/header.h"

namespace narrowcast::tests {

// Makes all checksums of a changed file match, as far as the sections are within the file.
inline void match_checksums(std::vector<uint8_t>& content) {
  namespace file = store::file;
  file::Header header;
  std::memcpy(&header, content.data(), sizeof header);
  const auto is_within = [&](const file::Section& section) {
    return section.bytes <= content.size() && section.offset <= content.size() - section.bytes;
  };
  std::vector<uint64_t> sums;
  for (uint32_t i = 0; i < file::section_count; ++i) {
    const file::Section& section = header.sections[i];
    if (!is_within(section) || !file::is_segmented(i)) continue;
    for (uint64_t at = 0; at < section.bytes; at += file::segment_bytes) {
      const uint64_t bytes = std::min(file::segment_bytes, section.bytes - at);
      sums.push_back(file::checksum(content.data() + section.offset + at, bytes));
    }
  }
  const file::Section& list = header.sections[file::checksums];
  if (is_within(list) && !sums.empty())
    std::memcpy(content.data() + list.offset, sums.data(), std::min(list.bytes, 8 * sums.size()));
  for (const uint32_t i : {file::model, file::metadata, file::checksums}) {
    file::Section& section = header.sections[i];
    if (is_within(section)) section.checksum = file::checksum(content.data() + section.offset, section.bytes);
  }
  std::memcpy(content.data(), &header, sizeof header);
  const uint64_t sum = file::header_checksum(content.data());
  std::memcpy(content.data() + file::page_bytes - 8, &sum, sizeof sum);
}

}  // namespace narrowcast::tests
