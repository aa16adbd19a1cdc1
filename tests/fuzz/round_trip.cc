// Encodes arbitrary bytes as values. Both encoders must produce the same frame, which decodes to the values, within the
// error bound of the codec.
//   byte 0: value type (modulo 12) and codec (the quotient, times 8)
//   byte 1: codec (bits 0, 6, 7), flags (1, 2), and how often the values are repeated (3 to 5)
//   then the values
#include <cstring>
#include <vector>

#include "../support/frame_info.h"
#include "../support/tolerance.h"
#include "check.h"
#include "narrowcast/codec.h"

using namespace narrowcast::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2) return 0;
  const auto dtype = static_cast<ncast_dtype>(data[0] % 12);
  static const std::vector<ncast_codec> codecs = narrowcast::tests::all_variants();
  const ncast_codec codec = codecs[((data[1] & 1u) | (data[1] >> 5 & 6u) | data[0] / 12u * 8) % codecs.size()];
  const ncast_codec_type* const bounded = narrowcast::tests::bounded_type_of(codec, dtype);
  const uint32_t given = data[1] >> 1 & 3u, flags = (given & NCAST_CHECKSUM) != 0 ? given : given | NCAST_NO_CHECKSUM;
  // Repeat small inputs, because only whole blocks are coded.
  std::vector<uint8_t> values;
  for (int times = 1 << (data[1] >> 3 & 7); times > 0 && values.size() < 20000; --times)
    values.insert(values.end(), data + 2, data + bytes);
  const uint64_t elems = values.size() / ncast_dtype_bytes(dtype);
  values.resize(elems * ncast_dtype_bytes(dtype));

  const size_t bound = ncast_bound(dtype, codec, elems);
  std::vector<uint8_t> frame(bound, 1), reference(bound, 2);
  size_t wire_bytes = 0, reference_bytes = 0;
  FUZZ_CHECK(ncast_encode(values.data(), dtype, elems, codec, flags, frame.data(), bound, &wire_bytes) == NCAST_OK);
  FUZZ_CHECK(ncast_encode(values.data(), dtype, elems, codec, flags | NCAST_REFERENCE, reference.data(), bound,
                          &reference_bytes) == NCAST_OK);
  FUZZ_CHECK(wire_bytes == reference_bytes && std::memcmp(frame.data(), reference.data(), wire_bytes) == 0);

  // A capacity equal to the frame's size suffices; one byte less does not.
  std::vector<uint8_t> tight(wire_bytes);
  size_t tight_bytes = 0;
  FUZZ_CHECK(ncast_encode(values.data(), dtype, elems, codec, flags, tight.data(), wire_bytes, &tight_bytes) ==
             NCAST_OK);
  FUZZ_CHECK(std::memcmp(frame.data(), tight.data(), wire_bytes) == 0);
  FUZZ_CHECK(ncast_encode(values.data(), dtype, elems, codec, flags, tight.data(), wire_bytes - 1, &tight_bytes) ==
             NCAST_TOO_SMALL);

  for (const uint32_t path : {0u, static_cast<uint32_t>(NCAST_REFERENCE)}) {
    std::vector<uint8_t> back(values.size());
    ncast_frame_info info = narrowcast::tests::sized_frame_info();
    FUZZ_CHECK(ncast_decode(frame.data(), wire_bytes, path, back.data(), back.size(), &info) == NCAST_OK);
    FUZZ_CHECK(info.elems == elems && info.dtype == dtype && info.wire_bytes == wire_bytes);
    if (bounded == nullptr)
      FUZZ_CHECK(back == values);
    else
      FUZZ_CHECK(is_near(dtype, back, moved_values(codec, *bounded, values, Blocks::frame)));
  }
  return 0;
}
