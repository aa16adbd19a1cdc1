#include "executor/cuda/generated/codec_code.h"

#include <cstdlib>
#include <string_view>

#include "codec/codec.h"
#include "executor/cuda/generated/text.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr const char* user_include = R"(
#include "codec/user/kernel.cuh"
)";
constexpr std::string_view header_line = "#pragma narrowcast_user_codec ";

// A C++ expression: the value of a parameter of the codec `codec`.
std::string value_of_field(const codec::Row& row, size_t parameter) {
  const auto [shift, bits] = row.field(parameter);
  std::string field = text("static_cast<uint32_t>(codec >> %u & 0x%llx)", shift, (1ull << bits) - 1);
  switch (row.parameters()[parameter].kind) {
    case NCAST_PARAMETER_REAL: return "__uint_as_float(" + field + ")";
    case NCAST_PARAMETER_POWER_OF_TWO: return "static_cast<uint64_t>(1) << (" + field + " - 1) % 64";
    default: return field;
  }
}

CodecCode code_of_user(const codec::Row& row, ncast_dtype dtype) {
  const codec::CudaHeader& header = *codec::host_of(row).cuda_header;
  std::string out = "\n#include \"narrowcast/user_codec.h\"\n";
  out += std::string(header_line) + std::to_string(row.id) + " " + header.digest + "\n";
  out += user_include;
  out += "\nnamespace narrowcast::codec::user {\nstruct Settings {\n";
  out += text("  static constexpr ncast_dtype dtype = %s;\n", name_of(dtype).c_str());
  out += text("  static constexpr uint32_t block_bytes = %u;\n", row.type(dtype)->block_bytes);
  out += text("  static constexpr bool is_fixed = %s, is_exact = %s;\n", boolean(row.has_fixed_payload()),
              boolean(row.is_exact()));
  out += "  __device__ static void read_parameters(ncast_codec codec, double* parameters) {\n";
  for (size_t i = 0; i < row.parameters().size(); ++i)
    out += text("    parameters[%zu] = static_cast<double>(%s);\n", i, value_of_field(row, i).c_str());
  out += "  }\n};\n}  // namespace narrowcast::codec::user\n";
  return {std::move(out), "codec::user::Codec<codec::user::Settings>"};
}

}  // namespace

CodecCode code_of_codec(ncast_codec codec, ncast_dtype dtype) {
  const codec::Row& row = *codec::find_row(codec);
  if (codec::is_of_user(codec)) return code_of_user(row, dtype);
  return {text("\n#include \"codec/%s/kernel.cuh\"\n", row.code),
          text("codec::%s::SharedCodec<%s>", row.code, name_of(dtype).c_str())};
}

std::string with_user_headers(std::string source) {
  const size_t at = source.find(header_line);
  if (at == std::string::npos) return source;
  const size_t end = source.find('\n', at);
  const auto id = static_cast<ncast_codec>(std::atoi(source.c_str() + at + header_line.size()));
  const codec::CudaHeader& header = *codec::host_of(*codec::find_row(id)).cuda_header;
  return source.substr(0, at) + "#line 1 \"" + header.path + "\"\n" + header.text + "\n#line 1 \"plan.cu\"" +
         source.substr(end);
}

}  // namespace narrowcast::executor::cuda::generated
