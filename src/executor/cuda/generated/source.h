// The CUDA source of a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/cuda/generated/program.h"

namespace narrowcast::executor::cuda::generated {

// Part of the key of the cache: increase it when the same program gets other source text, or the text another meaning.
inline constexpr uint32_t generator_version = 2;

struct BlockSource {
  std::string text;      // includes headers of src/; defines the kernel below
  uint32_t workers = 0;  // warps of a CTA that run groups; one more raises flags
  size_t shared_bytes = 0;
};
inline constexpr const char* block_kernel = "plan_blocks";

// The source of the kernel that works by blocks. Errors: UNSUPPORTED.
ncast_status generate_blocks(const Program& program, BlockSource* source);

// For short calls. The same program as a kernel that keeps values in registers and sends them as packets.
struct PacketSource {
  std::string text;
  std::vector<std::vector<uint32_t>> tables;  // by rank; see PlanPacketCall
  uint32_t strands = 1;                       // warps that share the work on a row
  uint32_t messages = 0;                      // between two ranks in one direction, at most
};
inline constexpr const char* packet_kernel = "plan_packets";
inline constexpr const char* aligned_packet_kernel = "plan_packets_aligned";
inline constexpr const char* line_kernel = "plan_lines";
inline constexpr size_t max_packet_receives = 16;  // in the code: longer programs take long to compile

// Leaves the text empty if the program cannot use packets, or is long.
void generate_packets(const Program& program, PacketSource* source);

}  // namespace narrowcast::executor::cuda::generated
