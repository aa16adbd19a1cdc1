// Reductions that programs create: pre-multiplied sums, with the factors that the engine needs.
#pragma once

#include <optional>

#include "nccl/abi/call.h"

namespace narrowcast::nccl {

// Stores the factor of a reduction that NCCL has created. in_memory: it is in the GPU's memory, where calls read it;
// otherwise it is read now. Only factors of floats of 16, 32 and 64 bits are stored:
// NCCL runs calls with others.
void remember_factor(Comm comm, int redop, const void* factor, int dtype, bool in_memory);
// NCCL has freed the reduction, or all of the communicator.
void forget_factor(Comm comm, int redop);
void forget_factors(Comm comm);

// The factor of a call's reduction; nullopt if it is none of those above, or is for another type.
std::optional<Factor> factor_of(const Call& call);

}  // namespace narrowcast::nccl
