// What the conformance tests of codecs share: every codec of the table with its parameters, and values for it.
#pragma once

#include <string>
#include <vector>

#include "codec/patterns.h"
#include "doctest/doctest.h"
#include "support/frame_info.h"

namespace narrowcast::tests {

inline constexpr ncast_dtype last_dtype = NCAST_FLOAT8_E5M2;

// Calls visit(info, codec) for every codec and set of parameters.
template <typename Visit>
void for_each_codec(Visit visit) {
  for (const ncast_codec_info& info : all_codecs())
    for (const ncast_codec codec : variants_of(info)) visit(info, codec);
}

// What a decoder says about a frame, and the values. Its buffers have exactly these sizes, at these offsets from an
// aligned address.
struct Decoding {
  ncast_status status;
  Bytes values;
  bool operator==(const Decoding&) const = default;
};
inline Decoding decode(const Bytes& frame, size_t capacity, uint32_t flags, size_t from_offset = 0,
                       size_t to_offset = 0) {
  const Exact from(frame, from_offset);
  Guarded values(capacity, to_offset);
  ncast_frame_info info = sized_frame_info();
  const ncast_status status = ncast_decode(from.data(), frame.size(), flags, values.data(), capacity, &info);
  REQUIRE(values.intact());
  if (status != NCAST_OK) return {status, {}};
  REQUIRE(values.untouched_after(info.raw_bytes));
  return {status, values.copy(info.raw_bytes)};
}

inline std::string name_of(ncast_dtype dtype) { return ncast_dtype_name(dtype); }

inline std::string text_of(ncast_codec codec) {
  char text[NCAST_CODEC_TEXT_BYTES];
  REQUIRE(ncast_codec_format(codec, text, sizeof text) == NCAST_OK);
  return text;
}

// Blocks of different patterns one after the other; random bits where the type has no exponents.
inline Bytes make_values(ncast_dtype dtype, uint64_t elems, Random& random) {
  const ValueType type = codec::window::value_type(dtype);
  const size_t bytes = elems * ncast_dtype_bytes(dtype);
  Bytes values;
  while (values.size() < bytes) {
    Bytes block(4096);
    if (type.value_bytes != 0) {
      block = make_block(type, random.below(static_cast<int>(pattern_names.size())), random);
    } else {
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(random.bits());
    }
    values.insert(values.end(), block.begin(), block.end());
  }
  values.resize(bytes);
  return values;
}

}  // namespace narrowcast::tests
