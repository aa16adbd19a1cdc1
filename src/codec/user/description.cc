// Checks the description of a user's codec, and makes its row.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "codec/text.h"
#include "codec/user/binding.h"

namespace narrowcast::codec::user {
namespace {

using Description = ncast_user_codec_description;

constexpr size_t most_name = 31;
constexpr uint32_t least_block_bytes = 512, most_block_bytes = 8192;

bool is_name(const char* text) {
  if (text == nullptr) return false;
  const std::string_view name(text);
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_part = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= most_name && is_letter(name[0]) && std::ranges::all_of(name, is_part);
}

bool is_reserved(std::string_view name) {
  return name == "auto" || name == "within" || std::ranges::find(presets, name, &Preset::name) != std::end(presets);
}

// Whether the field of a parameter can contain the value.
bool can_store(const ncast_codec_parameter& parameter, double value) {
  if (!(value > 0)) return false;
  if (parameter.kind == NCAST_PARAMETER_REAL) return std::isfinite(static_cast<float>(value));
  return value <= 65535 && value_of(parameter.kind, stored(parameter.kind, value)) == value;
}

std::string fault_of_parameter(const ncast_codec_parameter& parameter) {
  if (!is_name(parameter.name)) return "a parameter has no valid name";
  const std::string name = parameter.name;
  if (parameter.kind < NCAST_PARAMETER_INTEGER || parameter.kind > NCAST_PARAMETER_CHOICE)
    return "the parameter " + name + " has no valid kind";
  const bool is_choice = parameter.kind == NCAST_PARAMETER_CHOICE;
  if (is_choice && (parameter.choices == nullptr || parameter.least != 1 ||
                    parameter.most != count_of_choices(parameter.choices) || parameter.most > 255))
    return "the choices of the parameter " + name + " are not numbered from 1";
  const bool ascends = parameter.least <= parameter.default_value && parameter.default_value <= parameter.most;
  if (!ascends || !can_store(parameter, parameter.least) || !can_store(parameter, parameter.default_value) ||
      !can_store(parameter, parameter.most))
    return "the parameter " + name + " has limits or a default that its kind cannot have";
  return {};
}

std::string fault_of_parameters(const Description& description) {
  const uint32_t count = description.parameter_count;
  if (count > NCAST_MOST_CODEC_PARAMETERS) return "it has " + std::to_string(count) + " parameters, more than 4";
  if (count != 0 && description.parameters == nullptr) return "parameters is NULL";
  unsigned bits = first_parameter_bit;
  for (uint32_t i = 0; i < count; ++i) {
    const ncast_codec_parameter& parameter = description.parameters[i];
    if (std::string fault = fault_of_parameter(parameter); !fault.empty()) return fault;
    for (uint32_t before = 0; before < i; ++before)
      if (std::string_view(parameter.name) == description.parameters[before].name)
        return "two parameters have the name " + std::string(parameter.name);
    bits += bits_of(parameter.kind);
  }
  return bits > end_of_parameters ? "its parameters have more than 48 bits" : "";
}

std::string fault_of_types(const Description& description) {
  if (description.type_count == 0 || description.type_count > dtype_count || description.types == nullptr)
    return "it encodes no type, or too many";
  uint32_t seen = 0;
  for (uint32_t i = 0; i < description.type_count; ++i) {
    const ncast_codec_type& type = description.types[i];
    if (type.dtype < NCAST_INT8 || type.dtype > NCAST_FLOAT8_E5M2 || (seen >> type.dtype & 1) != 0)
      return "a type is unknown, or given twice";
    seen |= 1u << type.dtype;
    const std::string name = ncast_dtype_name(type.dtype);
    if (type.block_bytes < least_block_bytes || type.block_bytes > most_block_bytes ||
        type.block_bytes % least_block_bytes != 0)
      return "block_bytes of " + name + " is " + std::to_string(type.block_bytes) +
             ", not a multiple of 512 of at most 8192";
    if (!(type.prior_ratio > 0) || type.prior_ratio > 1) return "prior_ratio of " + name + " is not above 0, at most 1";
  }
  return {};
}

// With the default parameters: others are the business of `narrowcast codec check`.
std::string fault_of_payloads(const Description& description) {
  for (uint32_t i = 0; i < description.type_count; ++i) {
    const ncast_codec_type& type = description.types[i];
    ncast_user_block block = {
        type.dtype, type.block_bytes, type.block_bytes / static_cast<uint32_t>(ncast_dtype_bytes(type.dtype)), {}};
    for (uint32_t at = 0; at < description.parameter_count; ++at)
      block.parameters[at] = description.parameters[at].default_value;
    const size_t bytes = description.payload_bytes(&block);
    if (bytes == 0 || bytes > type.block_bytes || bytes % NCAST_FRAME_ALIGN != 0)
      return std::string("payload_bytes of ") + ncast_dtype_name(type.dtype) + " is " + std::to_string(bytes) +
             ", not a multiple of 16 of at most " + std::to_string(type.block_bytes);
  }
  return {};
}

}  // namespace

Row row_of(const Description& description) {
  Row row = {static_cast<uint8_t>(description.id),
             description.name,
             nullptr,
             description.exact != 0 ? Exactness::exact : Exactness::bounded,
             description.fixed_payload != 0 ? Payload::fixed : Payload::variable,
             {},
             {}};
  std::copy_n(description.parameters, description.parameter_count, row.parameter_slots);
  std::copy_n(description.types, description.type_count, row.type_slots);
  return row;
}

std::string fault_of(const Description& description) {
  if (description.id < NCAST_FIRST_USER_CODEC || description.id > NCAST_LAST_USER_CODEC)
    return "its id is " + std::to_string(description.id) + ", not one of those for users, 192 to 253";
  if (!is_name(description.name)) return "its name is not a letter and then letters, digits and _ in lower case";
  if (is_reserved(description.name)) return "the name " + std::string(description.name) + " means something else";
  if (std::string fault = fault_of_parameters(description); !fault.empty()) return fault;
  if (std::string fault = fault_of_types(description); !fault.empty()) return fault;
  if (description.encode == nullptr || description.decode == nullptr) return "encode or decode is NULL";
  if ((description.payload_bytes != nullptr) != (description.fixed_payload != 0))
    return "payload_bytes is for codecs with fixed payloads, which need it";
  if ((description.error_bound != nullptr) != (description.exact == 0))
    return "error_bound is for codecs that are not exact, which need it";
  return description.fixed_payload != 0 ? fault_of_payloads(description) : "";
}

}  // namespace narrowcast::codec::user
