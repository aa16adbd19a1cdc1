// Which codecs the contributions and the results of an all-reduce can have.
#pragma once

#include <string_view>

#include "codec/row.h"

namespace narrowcast::codec {

// Lossy codecs combine if they share their kernels, so that their blocks are alike, and with raw.
constexpr bool combine(const Row& sent, const Row& returned) {
  const auto is_raw = [](const Row& row) { return row.id == NCAST_CODEC_RAW; };
  if (sent.is_exact() && returned.is_exact()) return sent.id == returned.id;
  return is_raw(sent) || is_raw(returned) || std::string_view(sent.code) == returned.code;
}

// What messages say about codecs that do not.
inline constexpr const char* who_combines =
    "lossy codecs combine with raw, and those that quantise groups of values with each other";

}  // namespace narrowcast::codec
