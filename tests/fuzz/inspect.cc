// Inspects arbitrary bytes as a frame. The header is read or rejected, and counting blocks never reads outside the
// frame.
#include "../support/frame_info.h"
#include "check.h"
#include "narrowcast/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  ncast_frame_info info = narrowcast::tests::sized_frame_info();
  const ncast_status inspected = ncast_inspect(data, bytes, &info);
  FUZZ_CHECK(inspected == NCAST_OK || inspected == NCAST_CORRUPT);
  if (inspected == NCAST_OK) {
    FUZZ_CHECK(info.raw_bytes == info.elems * ncast_dtype_bytes(info.dtype));
    FUZZ_CHECK(info.wire_bytes <= ncast_bound(info.dtype, info.codec, info.elems));
    FUZZ_CHECK(info.wire_bytes % NCAST_FRAME_ALIGN == 0 && info.wire_bytes >= NCAST_FRAME_HEADER_BYTES);
    FUZZ_CHECK(ncast_inspect(data, NCAST_FRAME_HEADER_BYTES, &info) == NCAST_OK);
  }
  uint64_t counters[32];
  const ncast_status walked = ncast_inspect_blocks(data, bytes, counters, 32);
  FUZZ_CHECK(walked == NCAST_OK || walked == NCAST_CORRUPT);
  FUZZ_CHECK(walked == NCAST_CORRUPT || inspected == NCAST_OK);
  return 0;
}
