// The fast coders, for each instruction set. All produce the bytes of the reference.
#pragma once

#include <cstdint>
#include <span>

#include "store/rows/row_coder.h"

namespace narrowcast::store {

enum class InstructionSet : uint8_t { baseline, avx2, avx512 };

// Those that this machine supports, the best last.
std::span<const InstructionSet> instruction_sets();

RowCoder fast_plain(InstructionSet set);
RowCoder fast_window(InstructionSet set);
RowCoder fast_invariant(const Model& model, InstructionSet set);

// The coder of a model that is not `raw`.
RowCoder fast_coder(const Model& model, InstructionSet set);

}  // namespace narrowcast::store
