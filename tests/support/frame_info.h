// Structs of codec.h with struct_bytes set, as callers of the C API create them.
#pragma once

#include <map>
#include <string>

#include "codec_table.h"

namespace narrowcast::tests {

inline ncast_frame_info sized_frame_info() {
  ncast_frame_info info = {};
  info.struct_bytes = sizeof info;
  return info;
}

// The counters of ncast_inspect_blocks by name; empty if it fails.
inline std::map<std::string, uint64_t> block_counters(const void* frame, size_t frame_bytes) {
  ncast_frame_info header = sized_frame_info();
  if (ncast_inspect(frame, frame_bytes, &header) != NCAST_OK) return {};
  const ncast_codec_info codec = info_of(header.codec);
  uint64_t counts[32] = {};
  if (ncast_inspect_blocks(frame, frame_bytes, counts, codec.counter_count) != NCAST_OK) return {};
  std::map<std::string, uint64_t> counters;
  for (uint32_t i = 0; i < codec.counter_count; ++i) counters[codec.counters[i]] = counts[i];
  return counters;
}

// The number of blocks according to the counters of `window`.
inline uint64_t blocks_counted(const std::map<std::string, uint64_t>& counters) {
  uint64_t blocks = 0;
  for (const auto& [name, count] : counters)
    if (name == "raw_blocks" || name.starts_with("width_")) blocks += count;
  return blocks;
}

// The flags for ncast_encode, from those that the header is to have: a checksum only if NCAST_CHECKSUM is among them.
inline uint32_t encoder_flags(uint32_t flags) {
  return (flags & NCAST_CHECKSUM) != 0 ? flags : flags | NCAST_NO_CHECKSUM;
}

}  // namespace narrowcast::tests
