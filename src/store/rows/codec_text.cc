#include "store/rows/codec_text.h"

#include <charconv>

namespace narrowcast::store {
namespace {

constexpr Coder coders[] = {
#define STORE_ROW_CODER(id, SYMBOL, name, stages) Coder::SYMBOL,
#include "store/rows/coders.def"
};

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string known_parts() {
  std::string list = "auto, zeros, trim";
  for (const Coder coder : coders) list += std::string(", ") + name_of(coder);
  return list;
}

// Calls visit(part) for the parts of a text, which may be empty, until one returns a message.
template <typename Visit>
std::string for_each_part(std::string_view text, char separator, Visit visit) {
  for (;;) {
    const size_t at = text.find(separator);
    if (std::string error = visit(text.substr(0, at)); !error.empty() || at == text.npos) return error;
    text.remove_prefix(at + 1);
  }
}

// Returns a message, or "".
std::string set_parameter(std::string_view setting, RowCodec& codec) {
  const size_t equals = setting.find('=');
  if (equals == setting.npos) return quoted(setting) + " is not key=value";
  const std::string_view key = setting.substr(0, equals), value = setting.substr(equals + 1);
  uint32_t number = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool valid = failed == std::errc() && end == value.data() + value.size();
  if (codec.coder == Coder::INVARIANT && key == "chunk") {
    if (!valid || (number != 1 && number != 2 && number != 4 && number != 8))
      return "chunk is " + quoted(value) + ", not 1, 2, 4 or 8";
    if (codec.chunk_bytes != 0) return "chunk is given twice";
    codec.chunk_bytes = number;
    return "";
  }
  if (codec.coder == Coder::INVARIANT && key == "clusters") {
    if (!valid || number < 1 || number > max_fitted_clusters)
      return "clusters is " + quoted(value) + ", not a number from 1 to " + std::to_string(max_fitted_clusters);
    if (codec.clusters != 0) return "clusters is given twice";
    codec.clusters = number;
    return "";
  }
  return std::string(name_of(codec.coder)) + " has no parameter " + quoted(key) +
         (codec.coder == Coder::INVARIANT ? " (known: chunk, clusters)" : "");
}

std::string add_part(std::string_view part, bool& has_coder, RowCodec& codec) {
  if (has_coder) return quoted(part) + " follows the coder " + name_of(codec.coder);
  if (part == "zeros") {
    if (codec.has_zeros || codec.has_trim) return "zeros must be the first stage, once";
    codec.has_zeros = true;
    return "";
  }
  if (part == "trim") {
    if (codec.has_trim) return "trim is given twice";
    codec.has_trim = true;
    return "";
  }
  for (const Coder coder : coders) {
    if (part != name_of(coder)) continue;
    has_coder = true;
    codec.coder = coder;
    if ((codec.has_zeros || codec.has_trim) && !allows_stages(coder))
      return std::string("no stage can precede ") + name_of(coder);
    return "";
  }
  return quoted(part) + " is not a stage or coder of rows (known: " + known_parts() + ")";
}

}  // namespace

std::optional<RowCodec> parse_row_codec(std::string_view text, std::string* problem) {
  RowCodec codec{.coder = Coder::PLAIN};
  const size_t colon = text.find(':');
  bool has_coder = false;
  std::string error = for_each_part(text.substr(0, colon), '+',
                                    [&](std::string_view part) { return add_part(part, has_coder, codec); });
  if (error.empty() && colon != text.npos)
    error = for_each_part(text.substr(colon + 1), ',',
                          [&](std::string_view setting) { return set_parameter(setting, codec); });
  if (error.empty()) return codec;
  *problem = "codec " + quoted(text) + ": " + error;
  return std::nullopt;
}

}  // namespace narrowcast::store
