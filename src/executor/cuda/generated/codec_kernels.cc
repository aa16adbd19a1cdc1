#include "executor/cuda/generated/codec_kernels.h"

#include "codec/codec.h"
#include "executor/cuda/generated/codec_code.h"
#include "executor/cuda/generated/compile.h"
#include "executor/cuda/generated/cubin_cache.h"
#include "executor/cuda/generated/kernel_sources.h"
#include "executor/cuda/generated/nvrtc.h"
#include "executor/cuda/generated/text.h"
#include "narrowcast/user_codec.h"
#include "select/block_shape.h"
#include "status/error.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr const char* block_includes = R"(
#include "executor/cuda/blocks/move.cuh"
#include "executor/cuda/blocks/reduce.cuh"
)";

}  // namespace

std::string source_of_codec_kernels(ncast_codec codec, ncast_dtype dtype) {
  const CodecCode code = code_of_codec(codec, dtype);
  const std::string move_bounds =
      text("__maxnreg__(%u)", select::most_move_registers(codec::find_row(codec)->type(dtype)->block_bytes));
  std::string out = code.text;
  out += block_includes;
  out += "\nnamespace narrowcast::executor::cuda::generated {\n\nusing Codec = " + code.type + ";\n\n";
  const auto add = [&](const char* name, const std::string& bounds, const char* body) {
    out += text("extern \"C\" __global__ void %s %s(const __grid_constant__ BlockCall call) {\n  %s(call);\n}\n",
                bounds.c_str(), name, body);
  };
  add(codec_kernels[0], move_bounds, "move_pieces<Codec, false>");
  add(codec_kernels[1], move_bounds, "move_pieces<Codec, true>");
  add(codec_kernels[2], "__launch_bounds__(most_reduce_warps<Codec>() * 32, 1)",
      "reduce_pieces_by_cta<Codec, any_reduction>");
  return out + "\n}  // namespace narrowcast::executor::cuda::generated\n";
}

ncast_status compile_codec_kernels(ncast_codec codec, ncast_dtype dtype, int architecture, const std::string& folder,
                                   std::string* cubin) {
  const std::string source = source_of_codec_kernels(codec, dtype);
  const auto make = [&](std::string* made) {
    return compile_by_nvrtc(with_included_sources(source), architecture, made);
  };
  const CubinKey key = key_of(source, architecture, find_nvrtc().identity);
  const ncast_status status = CubinCache(folder).find_or_compile(key, make, cubin);
  if (status != NCAST_INTERNAL) return status;
  const std::string message = ncast_last_error();
  return fail(NCAST_INVALID_ARGUMENT, "the CUDA header of the codec %s does not compile for %s: %s",
              codec::find_row(codec)->name, ncast_dtype_name(dtype), message.c_str());
}

}  // namespace narrowcast::executor::cuda::generated

using namespace narrowcast;
using namespace narrowcast::executor::cuda::generated;

extern "C" ncast_status ncast_codec_compile(ncast_codec codec, ncast_dtype dtype, int architecture,
                                            const char* folder) {
  constexpr const char* function = "ncast_codec_compile";
  return guarded(function, [&] {
    if (ncast_status status = codec::check(function, codec)) return status;
    if (!codec::is_of_user(codec))
      return fail(NCAST_INVALID_ARGUMENT, "%s: the codec %s is not that of a user", function,
                  codec::describe(codec).c_str());
    if (ncast_status status = codec::check_on_gpu(function, codec)) return status;
    if (codec::find_row(codec)->type(dtype) == nullptr)
      return fail(NCAST_INVALID_ARGUMENT, "%s: the codec %s does not encode dtype %d", function,
                  codec::describe(codec).c_str(), int{dtype});
    if (architecture < 80 || architecture > 999)
      return fail(NCAST_INVALID_ARGUMENT, "%s: architecture is %d, not 80 (compute capability 8.0) or more", function,
                  architecture);
    std::string cubin;
    const std::string used = folder != nullptr ? folder : CubinCache::default_folder();
    const ncast_status status = compile_codec_kernels(codec, dtype, architecture, used, &cubin);
    if (status == NCAST_OK) return status;
    const std::string message = ncast_last_error();
    return fail(status, "%s: %s", function, message.c_str());
  });
}
