// Frames on the host: encode, decode, inspect_blocks. The blocks are coded by codec/window/.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include "codec/frame/header.h"
#include "codec/window/block.h"
#include "status/error.h"
#include "xxhash/xxhash.h"

namespace narrowcast::codec {
namespace {

using format::FrameHeader;

const window::BlockCoder& coder_for(uint32_t flags) {
  return (flags & NCAST_REFERENCE) != 0 ? window::reference : window::vectorized;
}

// XXH3 of the frame as it is with its checksum field zero.
uint64_t frame_checksum(const uint8_t* frame, size_t wire_bytes) {
  FrameHeader header;
  std::memcpy(&header, frame, sizeof header);
  header.checksum = 0;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, &header, sizeof header);
  XXH3_64bits_update(&state, frame + sizeof header, wire_bytes - sizeof header);
  return XXH3_64bits_digest(&state);
}

// Copies raw_bytes and zeroes up to the alignment; returns the aligned bytes.
size_t copy_aligned(uint8_t* to, const uint8_t* from, size_t raw_bytes) {
  if (raw_bytes != 0) std::memcpy(to, from, raw_bytes);
  const size_t bytes = format::aligned(raw_bytes);
  std::memset(to + raw_bytes, 0, bytes - raw_bytes);
  return bytes;
}

// Asks for memory that the next block will read or write. Blocks are as long as pages, at whose ends the hardware's
// own prefetchers stop; a frame in main memory decodes a quarter faster for it.
void prefetch_to_read(const uint8_t* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0);
}
void prefetch_to_write(const uint8_t* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(to + at, 1);
}

// Writes block ends and payloads of a window frame; returns the frame's bytes, or 0 when they exceed capacity.
size_t encode_blocks(const FrameHeader& header, const window::BlockCoder& coder, const uint8_t* values, uint8_t* frame,
                     size_t capacity) {
  const format::window::ValueType type = format::window::value_type(static_cast<ncast_dtype>(header.dtype));
  const size_t block_bytes = static_cast<size_t>(type.block_bytes());
  const size_t payload_offset = format::frame_layout(header.elems, header.block_elems).payload_offset;
  if (payload_offset > capacity) return 0;
  std::memset(frame + sizeof(FrameHeader), 0, payload_offset - sizeof(FrameHeader));

  std::vector<uint8_t> spill(block_bytes);  // a block is coded here when its bound might not fit
  size_t raw_left = header.elems * static_cast<size_t>(type.value_bytes);
  size_t end = payload_offset;
  for (uint32_t block = 0; block < header.blocks; ++block) {
    const size_t raw_bytes = std::min(raw_left, block_bytes);
    uint8_t* payload = capacity - end >= block_bytes ? frame + end : spill.data();
    prefetch_to_read(values + raw_bytes, std::min(raw_left - raw_bytes, block_bytes));
    prefetch_to_write(frame + end, std::min(capacity - end, 2 * block_bytes));
    const size_t bytes =
        raw_bytes == block_bytes ? coder.encode(type, values, payload) : copy_aligned(payload, values, raw_bytes);
    if (capacity - end < bytes) return 0;
    if (payload == spill.data()) std::memcpy(frame + end, payload, bytes);
    end += bytes;
    const auto units = static_cast<uint32_t>((end - payload_offset) / format::alignment);
    std::memcpy(frame + sizeof(FrameHeader) + size_t{block} * sizeof units, &units, sizeof units);
    values += raw_bytes;
    raw_left -= raw_bytes;
  }
  return end;
}

// One block of a window frame, found and checked.
struct BlockView {
  const uint8_t* payload;
  size_t payload_bytes;
  size_t raw_bytes;  // fewer than a block's only in the last
};

// Calls visit(block number, BlockView) for each block; stops with NCAST_CORRUPT at the first whose end is wrong or for
// which visit returns false.
template <typename Visit>
ncast_status for_each_block(const char* function, const ncast_frame_info& info, const uint8_t* frame, Visit visit) {
  const format::window::ValueType type = format::window::value_type(info.dtype);
  const size_t block_bytes = static_cast<size_t>(type.block_bytes());
  const size_t payload_offset = format::frame_layout(info.elems, info.block_elems).payload_offset;
  const uint64_t last_unit = (info.wire_bytes - payload_offset) / format::alignment;
  uint32_t begin = 0;
  for (uint32_t block = 0; block < info.blocks; ++block) {
    uint32_t end;
    std::memcpy(&end, frame + sizeof(FrameHeader) + size_t{block} * sizeof end, sizeof end);
    const size_t raw_bytes = std::min<uint64_t>(info.raw_bytes - uint64_t{block} * block_bytes, block_bytes);
    const uint64_t payload_bytes = uint64_t{end - begin} * format::alignment;
    const bool last = block + 1 == info.blocks;
    if (end <= begin || end > last_unit || (last && end != last_unit) || payload_bytes > format::aligned(raw_bytes) ||
        (raw_bytes < block_bytes && payload_bytes != format::aligned(raw_bytes)))
      return fail(NCAST_CORRUPT, "%s: block %u of %u ends at %u, after %u, in a frame of %" PRIu64 " bytes", function,
                  block, info.blocks, end, begin, info.wire_bytes);
    const BlockView view{frame + payload_offset + uint64_t{begin} * format::alignment, payload_bytes, raw_bytes};
    if (!visit(block, view))
      return fail(NCAST_CORRUPT, "%s: block %u of %u does not follow the format of window", function, block,
                  info.blocks);
    begin = end;
  }
  return NCAST_OK;
}

ncast_status read_whole_frame(const char* function, const void* frame, size_t frame_bytes, ncast_frame_info* info) {
  const ncast_status status = read_header(function, frame, frame_bytes, info);
  if (status != NCAST_OK) return status;
  if (frame_bytes < info->wire_bytes)
    return fail(NCAST_CORRUPT, "%s: the frame has %" PRIu64 " bytes, but only %zu are there", function,
                info->wire_bytes, frame_bytes);
  if ((info->flags & NCAST_CHECKSUM) != 0) {
    const uint64_t sum = frame_checksum(static_cast<const uint8_t*>(frame), info->wire_bytes);
    if (sum != info->checksum)
      return fail(NCAST_CORRUPT, "%s: checksum %016" PRIx64 ", but the header says %016" PRIx64, function, sum,
                  info->checksum);
  }
  return NCAST_OK;
}

ncast_status encode(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec, uint32_t flags,
                    void* frame, size_t capacity, size_t* wire_bytes) {
  const ncast_status status = check_frame_arguments("ncast_encode", dtype, codec, elems);
  if (status != NCAST_OK) return status;
  if (values == nullptr && elems != 0) return fail(NCAST_INVALID_ARGUMENT, "ncast_encode: values is NULL");
  if (frame == nullptr || wire_bytes == nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "ncast_encode: %s is NULL", frame == nullptr ? "frame" : "wire_bytes");
  if ((flags & ~(NCAST_CHECKSUM | NCAST_MORE | NCAST_REFERENCE)) != 0)
    return fail(NCAST_INVALID_ARGUMENT, "ncast_encode: flags 0x%x", flags);

  FrameHeader header = make_header(dtype, codec, elems, flags);
  auto* bytes = static_cast<uint8_t*>(frame);
  const auto* from = static_cast<const uint8_t*>(values);
  size_t end = 0;
  if (header.codec == NCAST_CODEC_WINDOW) {
    end = encode_blocks(header, coder_for(flags), from, bytes, capacity);
  } else if (const size_t needed = ncast_bound(dtype, codec, elems); needed <= capacity) {
    end = sizeof header + copy_aligned(bytes + sizeof header, from, elems * ncast_dtype_bytes(dtype));
  }
  if (end == 0)
    return fail(NCAST_TOO_SMALL,
                "ncast_encode: %" PRIu64 " values of %s do not fit a frame of %zu bytes; %zu always do", elems,
                ncast_dtype_name(dtype), capacity, ncast_bound(dtype, codec, elems));
  header.wire_bytes = end;
  std::memcpy(bytes, &header, sizeof header);
  if ((flags & NCAST_CHECKSUM) != 0) {
    header.checksum = frame_checksum(bytes, end);
    std::memcpy(bytes, &header, sizeof header);
  }
  *wire_bytes = end;
  return NCAST_OK;
}

ncast_status decode(const void* frame, size_t frame_bytes, uint32_t flags, void* values, size_t value_capacity,
                    ncast_frame_info* info_out) {
  if ((flags & ~NCAST_REFERENCE) != 0) return fail(NCAST_INVALID_ARGUMENT, "ncast_decode: flags 0x%x", flags);
  ncast_frame_info info;
  const ncast_status status = read_whole_frame("ncast_decode", frame, frame_bytes, &info);
  if (status != NCAST_OK) return status;
  if (info_out != nullptr) *info_out = info;
  if (info.raw_bytes > value_capacity)
    return fail(NCAST_TOO_SMALL, "ncast_decode: the frame decodes to %" PRIu64 " bytes, but values has room for %zu",
                info.raw_bytes, value_capacity);
  if (values == nullptr && info.raw_bytes != 0) return fail(NCAST_INVALID_ARGUMENT, "ncast_decode: values is NULL");

  const auto* bytes = static_cast<const uint8_t*>(frame);
  auto* to = static_cast<uint8_t*>(values);
  if (info.codec == NCAST_CODEC_RAW) {
    if (info.raw_bytes != 0) std::memcpy(to, bytes + sizeof(FrameHeader), info.raw_bytes);
    return NCAST_OK;
  }
  const format::window::ValueType type = format::window::value_type(info.dtype);
  const window::BlockCoder& coder = coder_for(flags);
  const uint8_t* const frame_end = bytes + info.wire_bytes;
  const uint8_t* const values_end = to + info.raw_bytes;
  return for_each_block("ncast_decode", info, bytes, [&](uint32_t, const BlockView& view) {
    uint8_t* block_values = to;
    to += view.raw_bytes;
    const uint8_t* next_payload = view.payload + view.payload_bytes;
    prefetch_to_read(next_payload, std::min<size_t>(static_cast<size_t>(frame_end - next_payload), view.raw_bytes));
    prefetch_to_write(to, std::min<size_t>(static_cast<size_t>(values_end - to), view.raw_bytes));
    if (view.raw_bytes == static_cast<size_t>(type.block_bytes()))
      return coder.decode(type, view.payload, view.payload_bytes, block_values);
    std::memcpy(block_values, view.payload, view.raw_bytes);
    return true;
  });
}

// Adds one block to the counts; false where its sections do not fit its length. The codes are not looked at.
bool count_block(const format::window::ValueType& type, const BlockView& view, ncast_block_stats* stats) {
  if (view.payload_bytes == format::aligned(view.raw_bytes)) {
    ++stats->blocks_of_width[0];
    return true;
  }
  window::PayloadHeader header;
  if (!window::read_payload_header(type, view.payload, view.payload_bytes, &header)) return false;
  const uint8_t* tokens = view.payload + type.escape_offset(header.width);
  int far_escapes = 0;
  for (int i = 0; i < header.escapes; ++i)
    far_escapes += (tokens[i / 2] >> i % 2 * 4 & 15) == format::window::far_token;
  ++stats->blocks_of_width[header.width];
  stats->escapes += static_cast<uint64_t>(header.escapes);
  stats->far_escapes += static_cast<uint64_t>(far_escapes);
  return view.payload_bytes == static_cast<size_t>(type.payload_bytes(header.width, header.escapes, far_escapes));
}

ncast_status inspect_blocks(const void* frame, size_t frame_bytes, ncast_block_stats* stats) {
  if (stats == nullptr) return fail(NCAST_INVALID_ARGUMENT, "ncast_inspect_blocks: stats is NULL");
  *stats = {};
  ncast_frame_info info;
  const ncast_status status = read_whole_frame("ncast_inspect_blocks", frame, frame_bytes, &info);
  if (status != NCAST_OK || info.codec == NCAST_CODEC_RAW) return status;
  const format::window::ValueType type = format::window::value_type(info.dtype);
  return for_each_block("ncast_inspect_blocks", info, static_cast<const uint8_t*>(frame),
                        [&](uint32_t, const BlockView& view) { return count_block(type, view, stats); });
}

}  // namespace
}  // namespace narrowcast::codec

extern "C" {

ncast_status ncast_encode(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec, uint32_t flags,
                          void* frame, size_t capacity, size_t* wire_bytes) {
  return narrowcast::guarded("ncast_encode", [&] {
    return narrowcast::codec::encode(values, dtype, elems, codec, flags, frame, capacity, wire_bytes);
  });
}

ncast_status ncast_decode(const void* frame, size_t frame_bytes, uint32_t flags, void* values, size_t value_capacity,
                          ncast_frame_info* info) {
  return narrowcast::guarded("ncast_decode", [&] {
    return narrowcast::codec::decode(frame, frame_bytes, flags, values, value_capacity, info);
  });
}

ncast_status ncast_inspect_blocks(const void* frame, size_t frame_bytes, ncast_block_stats* stats) {
  return narrowcast::guarded("ncast_inspect_blocks",
                             [&] { return narrowcast::codec::inspect_blocks(frame, frame_bytes, stats); });
}

}  // extern "C"
