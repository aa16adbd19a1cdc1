#include "executor/cuda/generated/compile.h"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL

#include "executor/cuda/generated/cubin_cache.h"
#include "executor/cuda/generated/kernel_sources.h"
#include "executor/cuda/generated/nvrtc.h"
#include "status/error.h"
#include "xxhash/xxhash.h"

namespace narrowcast::executor::cuda::generated {

ncast_status generate(const plan::Plan& plan, const Target& target, CompiledPlan* generated) {
  const bool is_float8 = target.dtype == NCAST_FLOAT8_E4M3 || target.dtype == NCAST_FLOAT8_E5M2;
  if (ncast_status status = make_program(plan, target.dtype, target.op, target.max_slots, &generated->program))
    return status;
  if (is_float8 && generated->program.reduces && target.architecture < 89)
    return fail(NCAST_UNSUPPORTED,
                "generated kernels reduce %s on GPUs of compute capability 8.9 or newer, but this is for %d.%d",
                ncast_dtype_name(target.dtype), target.architecture / 10, target.architecture % 10);
  if (std::optional<PieceProgram> pieces = find_pieces(generated->program); pieces && !target.by_steps) {
    generate_pieces(generated->program, *std::move(pieces), &generated->blocks);
  } else if (ncast_status status = generate_blocks(generated->program, &generated->blocks)) {
    return status;
  }
  generate_packets(generated->program, &generated->packets);
  const std::string sources =
      generated->blocks.text + generated->packets.straight.text + generated->packets.in_phases.text;
  generated->hash = XXH3_64bits(sources.data(), sources.size());
  return NCAST_OK;
}

namespace {

const codec::Kernel* find_built_in(const Program& program, const BlockSource& blocks) {
  if (!blocks.pieces) return nullptr;
  if (!blocks.pieces->reduces) return codec::find_kernel(codec::KernelKind::move, program.codec, program.dtype);
  if (program.op != NCAST_SUM) return nullptr;
  return codec::find_kernel(codec::KernelKind::reduce_sum, program.codec, program.dtype);
}

ncast_status compile_source(const std::string& generated, int architecture, const std::string& folder,
                            std::string* cubin) {
  const std::string source = with_included_sources(generated);
  const CubinKey key{source + "\nsm_" + std::to_string(architecture), find_nvrtc().identity};
  return CubinCache(folder).find_or_compile(
      key, [&](std::string* made) { return compile_by_nvrtc(source, architecture, made); }, cubin);
}

}  // namespace

// The kernels are compiled at the same time.
ncast_status compile(const plan::Plan& plan, const Target& target, const std::string& folder, CompiledPlan* compiled) {
  if (ncast_status status = generate(plan, target, compiled)) return status;
  compiled->built_in = find_built_in(compiled->program, compiled->blocks);
  if (compiled->built_in != nullptr) {
    compiled->blocks.warps = compiled->built_in->max_warps;
    compiled->blocks.shared_bytes = compiled->built_in->cta_bytes;
  }
  const auto part = [](const PacketKernels& kernels, const char* only) {
    return kernels.text.empty() ? "" : std::string("#define ") + only + "\n" + kernels.text;
  };
  const std::array<std::string, compiled_kernels> texts = {
      compiled->built_in == nullptr ? compiled->blocks.text : "", part(compiled->packets.straight, only_packets),
      part(compiled->packets.straight, only_lines), part(compiled->packets.in_phases, only_packets),
      part(compiled->packets.in_phases, only_lines)};
  struct Result {
    ncast_status status = NCAST_OK;
    std::string message;
  };
  std::array<Result, texts.size()> results;
  const auto run = [&](size_t i) {
    if (texts[i].empty()) return;
    results[i].status = guarded("compiling a plan", [&] {
      return compile_source(texts[i], target.architecture, folder, &compiled->cubins[i]);
    });
    if (results[i].status != NCAST_OK) results[i].message = ncast_last_error();
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < texts.size(); ++i) others.emplace_back(run, i);
    run(0);
  }
  for (const Result& result : results)
    if (result.status != NCAST_OK) return fail(result.status, "%s", result.message.c_str());
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda::generated
