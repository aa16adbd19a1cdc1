// The CUDA source of a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/cuda/generated/piece_program.h"
#include "executor/cuda/generated/program.h"

namespace narrowcast::executor::cuda::generated {

struct BlockSource {
  std::string text;  // includes headers of src/; defines the kernel below
  // If set, the kernel is an instance of those of the operations, and its parameter is a BlockCall with these pieces.
  std::optional<PieceProgram> pieces;
  uint32_t warps = 0;  // of a CTA
  // If the kernel has no pieces: warps of a CTA that run groups (one more raises flags), and its shared memory.
  uint32_t workers = 0;
  uint32_t shared_bytes = 0;
};
inline constexpr const char* block_kernel = "plan_blocks";

// The source of the kernel that works by blocks. shared_bytes: at most, of a CTA. Errors: UNSUPPORTED.
ncast_status generate_blocks(const Program& program, uint32_t shared_bytes, BlockSource* source);
// The same for programs of pieces.
void generate_pieces(const Program& program, PieceProgram pieces, uint32_t shared_bytes, BlockSource* source);

// A number in the table of a kernel that works by packets. Those of a chunk depend on the call.
struct PacketWord {
  static constexpr uint32_t no_program = ~0u;
  enum Kind : uint8_t { number, offset, bytes } kind;
  uint32_t value;  // the number, or the ChunkRef of which it is the offset in the buffer, or the bytes
};
struct PacketKernels {
  std::string text;                             // defines the two kernels below
  std::vector<std::vector<PacketWord>> tables;  // by rank; of its strands, one after another
};
inline constexpr const char* packet_kernel = "plan_packets";
inline constexpr const char* line_kernel = "plan_lines";
// Macros: if one is defined, the text defines only one of the kernels.
inline constexpr const char* only_packets = "PLAN_ONLY_PACKETS";
inline constexpr const char* only_lines = "PLAN_ONLY_LINES";

// For short calls. The same program as kernels that send values as packets.
struct PacketSource {
  PacketKernels straight;   // for aligned whole words, if every warp has one job: all values are in registers. Short
                            // programs only
  PacketKernels in_phases;  // for all other calls
  uint32_t strands = 1;     // jobs of a row
  uint32_t messages = 0;    // between two ranks in one direction, at most
};
// Receives in the code of all programs. Longer ones take long to compile, and their values do not fit into registers.
// Programs with more receives than the first number have loops of phases.
inline constexpr size_t max_straight_receives = 8, max_receives_in_phases = 16;

// Leaves the texts empty if the program cannot use packets, or is long.
void generate_packets(const Program& program, PacketSource* source);

}  // namespace narrowcast::executor::cuda::generated
