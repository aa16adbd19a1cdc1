// From a lowered plan to a cubin.
#pragma once

#include <array>
#include <string>

#include "executor/cuda/generated/program.h"
#include "executor/cuda/generated/source.h"

namespace narrowcast::executor::cuda::generated {

// What a plan is compiled for.
struct Target {
  ncast_dtype dtype = NCAST_INT8;
  ncast_redop op = NCAST_SUM;
  int architecture = 0;    // compute capability, such as 90
  uint32_t max_slots = 8;  // of the communicator's rings
  bool by_steps = false;   // for tests: no instances of the kernels of the operations
};

struct CompiledPlan {
  Program program;
  BlockSource blocks;
  PacketSource packets;  // no texts if the plan cannot use packets
  uint64_t hash = 0;     // of the sources
  // Of blocks, packets.straight and packets.in_phases.
  std::array<std::string, 3> cubins;
};

// Generates the sources without compiling them. Errors: those of make_program() and generate_blocks().
ncast_status generate(const plan::Plan& plan, const Target& target, CompiledPlan* generated);
// Compiles the plan, or takes the cubins from the cache in `folder`. Errors: those of generate() and
// compile_by_nvrtc().
ncast_status compile(const plan::Plan& plan, const Target& target, const std::string& folder, CompiledPlan* compiled);

}  // namespace narrowcast::executor::cuda::generated
