// Decodes arbitrary bytes as a frame. Both decoders must return the same status and values, and valid frames can be
// inspected.
#include <cstddef>
#include <cstring>
#include <vector>

#include "../support/frame_info.h"
#include "check.h"
#include "narrowcast/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  ncast_frame_info info = narrowcast::tests::sized_frame_info();
  const ncast_status inspected = ncast_inspect(data, bytes, &info);
  // A header may claim many more values than the frame contains, so limit the capacity.
  const size_t capacity = inspected == NCAST_OK && info.raw_bytes <= 8 * bytes + 65536 ? info.raw_bytes : 100;
  std::vector<uint8_t> fast(capacity, 1), slow(capacity, 1);
  ncast_frame_info decoded = narrowcast::tests::sized_frame_info();
  const ncast_status status = ncast_decode(data, bytes, 0, fast.data(), capacity, &decoded);
  FUZZ_CHECK(ncast_decode(data, bytes, NCAST_REFERENCE, slow.data(), capacity, nullptr) == status);
  if (status != NCAST_OK) {
    FUZZ_CHECK(ncast_last_error()[0] != 0);
    return 0;
  }
  FUZZ_CHECK(inspected == NCAST_OK);
  FUZZ_CHECK(std::memcmp(&info, &decoded, offsetof(ncast_frame_info, version) + sizeof info.version) == 0);
  FUZZ_CHECK(fast == slow);
  FUZZ_CHECK(ncast_inspect_blocks(data, bytes, nullptr, 0) == NCAST_OK);
  if (info.blocks == 0 || info.codec != NCAST_CODEC_WINDOW) return 0;
  auto counters = narrowcast::tests::block_counters(data, bytes);
  FUZZ_CHECK(narrowcast::tests::blocks_counted(counters) == info.blocks);
  FUZZ_CHECK(counters["far_escapes"] <= counters["escapes"] && counters["escapes"] <= info.elems);
  return 0;
}
