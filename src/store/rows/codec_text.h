// Row codecs as text: stages and a coder joined by '+', then parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/rows/model.h"

namespace narrowcast::store {

// What a user asks for; the model has the rest.
struct RowCodec {
  Coder coder = Coder::RAW;
  bool has_zeros = false;
  bool has_trim = false;
  uint32_t chunk_bytes = 0;  // 0: choose
  uint32_t clusters = 0;     // 0: choose
};

inline constexpr uint32_t max_fitted_clusters = 1024;

// Parses all but "auto". Returns nothing if the text is invalid and sets *problem to a message.
std::optional<RowCodec> parse_row_codec(std::string_view text, std::string* problem);

}  // namespace narrowcast::store
