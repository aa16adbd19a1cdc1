#include "codec/codec.h"

#include <cinttypes>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "codec/text.h"
#include "status/error.h"
#include "status/sized_struct.h"

namespace narrowcast::codec {
namespace {

const Row& row_of(ncast_codec codec) { return *find_row(codec); }

ncast_status check_parameters(const char* function, const Row& row, ncast_codec codec) {
  const auto parameters = row.parameters();
  if ((codec & row.unused_bits()) != 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec %s has %zu parameters, but 0x%" PRIx64 " sets bits beyond them",
                function, row.name, parameters.size(), codec);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ncast_codec_parameter& parameter = parameters[i];
    const uint32_t stored = get(codec, row.field(i));
    if (stored == 0 || is_valid(parameter, stored)) continue;
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec %s: %s is %s, not %s", function, row.name, parameter.name,
                text::value(parameter, stored).c_str(), text::range(parameter).c_str());
  }
  return NCAST_OK;
}

}  // namespace

const Row* find_row(ncast_codec codec) {
  for (const Row& row : rows())
    if (row.id == id_of(codec)) return &row;
  return nullptr;
}

ncast_status check(const char* function, ncast_codec codec) {
  if (codec == NCAST_CODEC_AUTO || (is_within(codec) && !is_forced(codec)))
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec is %s, which only the calls of a communicator accept", function,
                describe(codec).c_str());
  if (is_forced(codec))
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec is %s, but only the calls of a communicator can force a codec",
                function, describe(codec).c_str());
  const Row* const row = find_row(codec);
  if (row == nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec is %u, which is not a codec", function, id_of(codec));
  if ((codec >> 8 & 0xff) != 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec is 0x%" PRIx64 ", but bits 9 to 15 are reserved", function, codec);
  return check_parameters(function, *row, codec);
}

ncast_status check_of_call(const char* function, ncast_codec codec) {
  if (codec == NCAST_CODEC_AUTO) return NCAST_OK;
  if (without_flag(codec) == NCAST_CODEC_AUTO)
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec is auto, which cannot be forced", function);
  if (is_within(codec)) {
    if (without_flag(codec) == set(NCAST_CODEC_WITHIN, relative_field, get(codec, relative_field)) &&
        is_valid_relative(relative_of(codec)))
      return NCAST_OK;
    return fail(NCAST_INVALID_ARGUMENT,
                "%s: codec is 0x%" PRIx64 ", not within with a share above 0 and below 1 in bits 16 to 47", function,
                codec);
  }
  return check(function, without_flag(codec));
}

ncast_status check_on_gpu(const char* function, ncast_codec codec) {
  if (!is_of_user(codec) || host_of(row_of(codec)).cuda_header != nullptr) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED, "%s: the codec %s is that of a user without a CUDA header, and runs on CPUs only",
              function, describe(codec).c_str());
}

ncast_status check_in_gpu_frames(const char* function, ncast_codec codec) {
  if (!is_of_user(codec)) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED, "%s: the codec %s is that of a user; frames in GPU memory cannot have it", function,
              describe(codec).c_str());
}

ncast_codec canonical(ncast_codec codec) {
  if (codec == NCAST_CODEC_AUTO || is_within(codec)) return codec;
  if (without_flag(codec) == NCAST_CODEC_RAW) return NCAST_CODEC_RAW;
  return text::without_defaults(row_of(codec), codec);
}

ncast_codec explicit_parameters(ncast_codec codec) {
  const Row& row = row_of(codec);
  const auto parameters = row.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (get(codec, row.field(i)) == 0)
      codec = set(codec, row.field(i), stored(parameters[i].kind, parameters[i].default_value));
  return codec;
}

ncast_codec effective_codec(ncast_dtype dtype, ncast_codec codec) {
  return row_of(codec).type(dtype) != nullptr ? codec : ncast_codec{NCAST_CODEC_RAW};
}

BlockType block_type(ncast_dtype dtype, ncast_codec codec) {
  return {dtype, row_of(codec).type(dtype)->block_bytes, explicit_parameters(codec)};
}

bool is_exact(ncast_codec codec) {
  return codec == NCAST_CODEC_AUTO || (!is_within(codec) && row_of(codec).is_exact());
}

double prior_ratio(ncast_codec codec, ncast_dtype dtype) {
  const ncast_codec_type* const type = row_of(codec).type(dtype);
  return type != nullptr ? type->prior_ratio : 1;
}

std::string describe(ncast_codec codec) { return format(rows(), codec); }

}  // namespace narrowcast::codec

using namespace narrowcast;

extern "C" {

size_t ncast_codec_count(void) { return codec::rows().size(); }

ncast_status ncast_codec_describe(size_t index, ncast_codec_info* info) {
  if (index >= codec::rows().size())
    return fail(NCAST_INVALID_ARGUMENT, "ncast_codec_describe: index is %zu, but there are %zu codecs", index,
                codec::rows().size());
  const codec::Row& row = codec::rows()[index];
  const auto counters = codec::host_of(row).counter_names;
  ncast_codec_info result = {};
  result.codec = row.id;
  result.name = row.name;
  result.exact = row.is_exact();
  result.fixed_payload = row.has_fixed_payload();
  result.parameter_count = static_cast<uint32_t>(row.parameters().size());
  result.type_count = static_cast<uint32_t>(row.types().size());
  result.counter_count = static_cast<uint32_t>(counters.size());
  result.parameters = row.parameter_slots;
  result.types = row.type_slots;
  result.counters = counters.data();
  return fill_struct("ncast_codec_describe", "info", result, info);
}

ncast_status ncast_codec_parse(const char* text, ncast_codec* codec) {
  const char* function = "ncast_codec_parse";
  return guarded(function, [&] {
    if (text == nullptr || codec == nullptr)
      return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function, text == nullptr ? "text" : "codec");
    const codec::ParsedCodec parsed = codec::parse(codec::rows(), text);
    if (!parsed.codec) return fail(NCAST_INVALID_ARGUMENT, "%s", parsed.error.c_str());
    *codec = *parsed.codec;
    return NCAST_OK;
  });
}

const char* ncast_codec_preset(size_t index, const char** codec) {
  if (index >= std::size(codec::presets)) return nullptr;
  if (codec != nullptr) *codec = codec::presets[index].codec;
  return codec::presets[index].name;
}

ncast_status ncast_codec_format(ncast_codec codec, char* text, size_t capacity) {
  const char* function = "ncast_codec_format";
  return guarded(function, [&] {
    if (text == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: text is NULL", function);
    if (const ncast_status status = codec::check_of_call(function, codec)) return status;
    const std::string result = codec::describe(codec);
    if (result.size() >= capacity)
      return fail(NCAST_TOO_SMALL, "%s: '%s' does not fit into %zu bytes", function, result.c_str(), capacity);
    std::memcpy(text, result.c_str(), result.size() + 1);
    return NCAST_OK;
  });
}

double ncast_codec_error_bound(ncast_codec codec, ncast_dtype dtype, double largest) {
  constexpr double invalid = std::numeric_limits<double>::quiet_NaN();
  if (codec::check("ncast_codec_error_bound", codec) != NCAST_OK || ncast_dtype_bytes(dtype) == 0 ||
      !std::isfinite(largest) || largest < 0)
    return invalid;
  const codec::Row& row = *codec::find_row(codec);
  if (row.is_exact() || row.type(dtype) == nullptr) return 0;
  return codec::host_of(row).error_bound(codec::block_type(dtype, codec), largest);
}

}  // extern "C"
