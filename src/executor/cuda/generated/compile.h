// From a lowered plan to a cubin.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "codec/kernel_table.h"
#include "executor/cuda/generated/cubin_cache.h"
#include "executor/cuda/generated/program.h"
#include "executor/cuda/generated/source.h"
#include "select/block_shape.h"

namespace narrowcast::executor::cuda::generated {

// What a plan is compiled for.
struct Target {
  ncast_dtype dtype = NCAST_INT8;
  ncast_redop op = NCAST_SUM;
  int architecture = 0;    // compute capability, such as 90
  uint32_t max_slots = 8;  // of the communicator's rings
  bool by_steps = false;   // for tests: no instances of the kernels of the operations
  // What the communicator can use: the kernels that work by packets, and those of them that work by lines. Only these
  // are compiled and loaded.
  bool packets = true, lines = true;
  uint32_t shared_bytes = select::most_shared_bytes;  // of a CTA, the same on all ranks
};

// Each kernel is compiled by itself, at the same time as the others.
enum class CompiledKernel : uint8_t { blocks, packets, lines, packets_in_phases, lines_in_phases };
inline constexpr size_t compiled_kernels = 5;

struct CompiledPlan {
  Program program;
  BlockSource blocks;
  PacketSource packets;  // no texts if the plan cannot use packets
  uint64_t hash = 0;     // of the sources, and whether the plan asks for packets
  // The kernel of the operations that `blocks` is an instance of, if the library contains it.
  const codec::Kernel* built_in = nullptr;
  std::array<std::string, compiled_kernels> cubins;       // by CompiledKernel; empty if the plan has no such kernel
  std::array<double, compiled_kernels> cpu_seconds = {};  // to compile them; 0 if they were in the cache
  bool is_kept = true;                                    // the cache has all of them
};

// The key of a kernel in the cache. source: without the sources that it includes. compiler: NvrtcFile::identity.
CubinKey key_of(const std::string& source, int architecture, const std::string& compiler);

// Generates the sources without compiling them. Errors: those of make_program() and generate_blocks().
ncast_status generate(const plan::Plan& plan, const Target& target, CompiledPlan* generated);
// Compiles the plan, or takes the cubins from the cache in `folder`. Errors: those of generate() and
// compile_by_nvrtc().
ncast_status compile(const plan::Plan& plan, const Target& target, const std::string& folder, CompiledPlan* compiled);
// The same once for all communicators of this process that have the plan.
ncast_status compile_shared(const plan::Plan& plan, const Target& target, const std::string& folder,
                            std::shared_ptr<const CompiledPlan>* compiled);

}  // namespace narrowcast::executor::cuda::generated
