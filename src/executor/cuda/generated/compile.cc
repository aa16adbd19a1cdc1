#include "executor/cuda/generated/compile.h"

#include <thread>

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
  if (ncast_status status = generate_blocks(generated->program, &generated->blocks)) return status;
  generate_packets(generated->program, &generated->packets);
  const std::string sources = generated->blocks.text + generated->packets.text;
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

// The two kernels are compiled at the same time.
ncast_status compile(const plan::Plan& plan, const Target& target, const std::string& folder, CompiledPlan* compiled) {
  if (ncast_status status = generate(plan, target, compiled)) return status;
  ncast_status packets_status = NCAST_OK;
  std::string packets_message;
  std::thread packets;
  if (!compiled->packets.text.empty())
    packets = std::thread([&] {
      packets_status = guarded("compiling a plan", [&] {
        return compile_source(compiled->packets.text, target.architecture, folder, &compiled->packet_cubin);
      });
      packets_message = ncast_last_error();
    });
  const ncast_status status = guarded("compiling a plan", [&] {
    return compile_source(compiled->blocks.text, target.architecture, folder, &compiled->block_cubin);
  });
  if (packets.joinable()) packets.join();
  if (status != NCAST_OK) return status;
  return packets_status == NCAST_OK ? NCAST_OK : fail(packets_status, "%s", packets_message.c_str());
}

}  // namespace narrowcast::executor::cuda::generated
