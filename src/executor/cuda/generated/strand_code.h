// The code of a strand in a kernel that works by packets.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/cuda/generated/source.h"
#include "executor/cuda/generated/strands.h"

namespace narrowcast::executor::cuda::generated {

// What a strand does in one phase. The code refers to its words as q[0], q[1], ..., and to the number of the phase as
// `phase`: phases with equal code differ in their words only.
struct StrandPhase {
  std::string code;  // empty: nothing
  size_t words = 0;
  size_t receives = 0;  // in the code
  auto operator<=>(const StrandPhase&) const = default;
};
struct StrandCode {
  std::vector<StrandPhase> phases;
  std::vector<PacketWord> words;  // of all phases: numbers, such as peers and chunks
};
// All values are in registers. There is one phase. numbers: of the program's messages, among those between their ranks.
StrandCode straight_code(const Program& program, int rank, const std::vector<uint32_t>& numbers,
                         const std::vector<const Item*>& strand);
// Loads a value again in every phase that uses it. None if a value that is not in the input or output would have to be
// kept.
std::optional<StrandCode> code_in_phases(const Program& program, int rank, const std::vector<uint32_t>& numbers,
                                         const std::vector<const Item*>& strand, size_t phases);

}  // namespace narrowcast::executor::cuda::generated
