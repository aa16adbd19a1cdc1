// The code of a strand in a kernel that works by packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/cuda/generated/source.h"
#include "executor/cuda/generated/strands.h"

namespace narrowcast::executor::cuda::generated {

struct StrandCode {
  std::vector<std::string> phases;
  std::vector<PacketWord> words;  // numbers, such as peers and chunks; strands with equal code share it
  size_t receives = 0;            // in the code
};
// All values are in registers. There is one phase. numbers: of the program's messages, among those between their ranks.
StrandCode straight_code(const Program& program, int rank, const std::vector<uint32_t>& numbers,
                         const std::vector<const Item*>& strand);
// Loads a value again in every phase that uses it. None if a value that is not in the input or output would have to be
// kept.
std::optional<StrandCode> code_in_phases(const Program& program, int rank, const std::vector<uint32_t>& numbers,
                                         const std::vector<const Item*>& strand, size_t phases);

}  // namespace narrowcast::executor::cuda::generated
