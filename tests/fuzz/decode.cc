// Any bytes as a frame: both decoders give the same status and the same values, and what decodes can be inspected.
#include <cstring>
#include <vector>

#include "check.h"
#include "narrowcast/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  ncast_frame_info info{};
  const ncast_status inspected = ncast_inspect(data, bytes, &info);
  // A header may promise far more than its frame holds; the values' capacity is the caller's to limit.
  const size_t capacity = inspected == NCAST_OK && info.raw_bytes <= 8 * bytes + 65536 ? info.raw_bytes : 100;
  std::vector<uint8_t> fast(capacity, 1), slow(capacity, 1);
  ncast_frame_info decoded{};
  const ncast_status status = ncast_decode(data, bytes, 0, fast.data(), capacity, &decoded);
  FUZZ_CHECK(ncast_decode(data, bytes, NCAST_REFERENCE, slow.data(), capacity, nullptr) == status);
  if (status != NCAST_OK) {
    FUZZ_CHECK(ncast_last_error()[0] != 0);
    return 0;
  }
  FUZZ_CHECK(inspected == NCAST_OK);
  FUZZ_CHECK(std::memcmp(&info, &decoded, sizeof info) == 0);
  FUZZ_CHECK(fast == slow);
  ncast_block_stats stats;
  FUZZ_CHECK(ncast_inspect_blocks(data, bytes, &stats) == NCAST_OK);
  uint64_t blocks = 0;
  for (const uint64_t count : stats.blocks_of_width) blocks += count;
  FUZZ_CHECK(blocks == info.blocks);
  FUZZ_CHECK(stats.far_escapes <= stats.escapes && stats.escapes <= info.elems);
  return 0;
}
