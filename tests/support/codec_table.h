// The library's table of codecs, read through the C API.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "narrowcast/codec.h"

namespace narrowcast::tests {

// The description of codec number `index`.
inline ncast_codec_info codec_info(size_t index) {
  ncast_codec_info info = {};
  info.struct_bytes = sizeof info;
  return ncast_codec_describe(index, &info) == NCAST_OK ? info : ncast_codec_info{};
}

// A named struct, because nvcc 13.0 fails to compile vectors of structs that only have a typedef name.
struct CodecInfo : ncast_codec_info {};

inline std::vector<CodecInfo> all_codecs() {
  std::vector<CodecInfo> all;
  for (size_t i = 0; i < ncast_codec_count(); ++i) all.push_back({codec_info(i)});
  return all;
}

// The description of a codec. Its parameters are ignored.
inline ncast_codec_info info_of(ncast_codec codec) {
  for (const ncast_codec_info& info : all_codecs())
    if ((info.codec & 0xff) == (codec & 0xff)) return info;
  return {};
}

// The entry of a value type. NULL if the codec stores such values raw.
inline const ncast_codec_type* type_of(const ncast_codec_info& info, ncast_dtype dtype) {
  for (uint32_t i = 0; i < info.type_count; ++i)
    if (info.types[i].dtype == dtype) return &info.types[i];
  return nullptr;
}

// The entry of a value type if values can change. NULL if decoding restores all bits.
inline const ncast_codec_type* bounded_type_of(ncast_codec codec, ncast_dtype dtype) {
  if (codec == NCAST_CODEC_AUTO) return nullptr;
  const ncast_codec_info info = info_of(codec);
  return info.exact != 0 ? nullptr : type_of(info, dtype);
}

// In a call: the codec is used even if it does not pay. AUTO stays AUTO.
constexpr ncast_codec forced(ncast_codec codec) {
  return codec == NCAST_CODEC_AUTO ? codec : codec | NCAST_CODEC_FORCED;
}

// The codec with its default parameters, and with each parameter at its minimum and its maximum.
inline std::vector<ncast_codec> variants_of(const ncast_codec_info& info) {
  std::vector<ncast_codec> variants = {info.codec};
  for (uint32_t i = 0; i < info.parameter_count; ++i) {
    const ncast_codec_parameter& parameter = info.parameters[i];
    for (const double value : {parameter.least, parameter.most}) {
      if (value == parameter.default_value) continue;
      std::ostringstream text;
      text << info.name << ':' << parameter.name << '=';
      if (parameter.kind == NCAST_PARAMETER_CHOICE) {
        const std::string_view choices = parameter.choices;
        text << (value == parameter.least ? choices.substr(0, choices.find('|'))
                                          : choices.substr(choices.rfind('|') + 1));
      } else {
        text << value;
      }
      variants.emplace_back();
      if (ncast_codec_parse(text.str().c_str(), &variants.back()) != NCAST_OK)
        throw std::logic_error(ncast_last_error());
    }
  }
  return variants;
}

// The variants of all codecs.
inline std::vector<ncast_codec> all_variants() {
  std::vector<ncast_codec> all;
  for (const ncast_codec_info& info : all_codecs())
    for (const ncast_codec codec : variants_of(info)) all.push_back(codec);
  return all;
}

// Those that encode the same values alike in every call. Codecs that round at random have a dither or say so.
inline std::vector<ncast_codec> repeatable_variants() {
  std::vector<ncast_codec> all = all_variants();
  std::erase_if(all, [](ncast_codec codec) {
    char text[NCAST_CODEC_TEXT_BYTES];
    if (ncast_codec_format(codec, text, sizeof text) != NCAST_OK) throw std::logic_error(ncast_last_error());
    const std::string_view all_of_it = text;
    return all_of_it.find("dither=") != all_of_it.npos || all_of_it.find("=stochastic") != all_of_it.npos;
  });
  return all;
}

}  // namespace narrowcast::tests
