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

ncast_status compile_source(const std::string& generated, int architecture, const std::string& folder,
                            std::string* cubin) {
  const std::string source = with_included_sources(generated);
  const CubinKey key{source + "\nsm_" + std::to_string(architecture), find_nvrtc().identity};
  return CubinCache(folder).find_or_compile(
      key, [&](std::string* made) { return compile_by_nvrtc(source, architecture, made); }, cubin);
}

}  // namespace

// The sources are compiled at the same time.
ncast_status compile(const plan::Plan& plan, const Target& target, const std::string& folder, CompiledPlan* compiled) {
  if (ncast_status status = generate(plan, target, compiled)) return status;
  const std::array texts{&compiled->blocks.text, &compiled->packets.straight.text, &compiled->packets.in_phases.text};
  struct Result {
    ncast_status status = NCAST_OK;
    std::string message;
  };
  std::array<Result, texts.size()> results;
  const auto run = [&](size_t i) {
    if (texts[i]->empty()) return;
    results[i].status = guarded("compiling a plan", [&] {
      return compile_source(*texts[i], target.architecture, folder, &compiled->cubins[i]);
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
