// Frames on the host: encode, decode and inspect_blocks. The codecs of the table encode and decode the blocks.
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include "codec/frame/encode_frame.h"
#include "codec/frame/header.h"
#include "status/error.h"
#include "status/sized_struct.h"
#include "xxhash/xxhash.h"

namespace narrowcast::codec {
namespace {

using format::FrameHeader;

// How the values of a frame are encoded.
struct Coding {
  Coding(ncast_dtype dtype, ncast_codec codec)
      : type(block_type(dtype, effective_codec(dtype, codec))),
        row(*find_row(effective_codec(dtype, codec))),
        host(host_of(row)) {}

  const BlockCoder& coder(uint32_t flags) const { return (flags & NCAST_REFERENCE) != 0 ? host.reference : host.fast; }
  // Whether payloads equal the values, as those of raw do.
  bool is_copy() const { return row.has_fixed_payload() && host.payload_bytes(type) == type.block_bytes; }

  BlockType type;
  const Row& row;
  const HostCodec& host;
};

// XXH3 of the frame with zeros in its checksum field.
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

// Copies raw_bytes, pads with zeros to the alignment, and returns the aligned size.
size_t copy_aligned(uint8_t* to, const uint8_t* from, size_t raw_bytes) {
  if (raw_bytes != 0) std::memcpy(to, from, raw_bytes);
  const size_t bytes = format::aligned(raw_bytes);
  std::memset(to + raw_bytes, 0, bytes - raw_bytes);
  return bytes;
}

// Prefetch the memory of the next block. A block is as large as a page, and hardware prefetchers stop at the end of a
// page. With these, frames in main memory decode 25% faster.
void prefetch_to_read(const uint8_t* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0);
}
void prefetch_to_write(const uint8_t* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(to + at, 1);
}

// Writes the block ends, if the frame has them, and the payloads. Returns the size of the frame, or 0 if it exceeds
// capacity.
size_t encode_blocks(const FrameHeader& header, const Coding& coding, const BlockCoder& coder, BlockContext context,
                     const uint8_t* values, uint8_t* frame, size_t capacity) {
  const size_t block_bytes = coding.type.block_bytes;
  const bool has_ends = !coding.row.has_fixed_payload();
  const size_t payload_offset =
      has_ends ? format::frame_layout(header.elems, header.block_elems).payload_offset : sizeof(FrameHeader);
  if (payload_offset > capacity) return 0;
  std::memset(frame + sizeof(FrameHeader), 0, payload_offset - sizeof(FrameHeader));

  std::vector<uint8_t> spill(block_bytes);  // for blocks whose maximum size exceeds the remaining capacity
  size_t raw_left = header.elems * ncast_dtype_bytes(coding.type.dtype);
  size_t end = payload_offset;
  for (uint32_t block = 0; raw_left != 0; ++block) {
    const size_t raw_bytes = std::min(raw_left, block_bytes);
    uint8_t* payload = capacity - end >= block_bytes ? frame + end : spill.data();
    prefetch_to_read(values + raw_bytes, std::min(raw_left - raw_bytes, block_bytes));
    prefetch_to_write(frame + end, std::min(capacity - end, 2 * block_bytes));
    const size_t bytes = raw_bytes == block_bytes ? coder.encode(coding.type, context, values, payload)
                                                  : copy_aligned(payload, values, raw_bytes);
    if (capacity - end < bytes) return 0;
    if (payload == spill.data()) std::memcpy(frame + end, payload, bytes);
    end += bytes;
    if (has_ends) {
      const auto units = static_cast<uint32_t>((end - payload_offset) / format::alignment);
      std::memcpy(frame + sizeof(FrameHeader) + size_t{block} * sizeof units, &units, sizeof units);
    }
    values += raw_bytes;
    raw_left -= raw_bytes;
    context.first_elem += coding.type.block_elems();
  }
  return end;
}

// One block of a frame, whose bounds have been checked.
struct BlockView {
  const uint8_t* payload;
  size_t payload_bytes;
  size_t raw_bytes;  // block_bytes, or less in the last block
};

// Finds the payloads of a frame whose header has been checked.
class BlockFinder {
 public:
  BlockFinder(const Coding& coding, const ncast_frame_info& info, const uint8_t* frame)
      : block_bytes_(coding.type.block_bytes),
        blocks_((info.raw_bytes + block_bytes_ - 1) / block_bytes_),
        raw_bytes_(info.raw_bytes),
        fixed_bytes_(coding.row.has_fixed_payload() ? coding.host.payload_bytes(coding.type) : 0),
        ends_(frame + sizeof(FrameHeader)),
        payloads_(frame + (fixed_bytes_ != 0 ? sizeof(FrameHeader)
                                             : format::frame_layout(info.elems, info.block_elems).payload_offset)),
        last_unit_(static_cast<uint64_t>(frame + info.wire_bytes - payloads_) / format::alignment) {}

  uint64_t blocks() const { return blocks_; }
  // In units of format::alignment, from the start of the payloads.
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }

  // Advances to the next block. Returns false if its end is not valid.
  bool next(uint64_t block, BlockView* view) {
    const size_t raw_bytes = std::min<uint64_t>(raw_bytes_ - block * block_bytes_, block_bytes_);
    begin_ = end_;
    end_ = fixed_bytes_ == 0
               ? stored_end(block)
               : begin_ + (raw_bytes == block_bytes_ ? fixed_bytes_ : format::aligned(raw_bytes)) / format::alignment;
    const bool last = block + 1 == blocks_;
    const uint64_t payload_bytes = (end_ - begin_) * format::alignment;
    if (end_ <= begin_ || end_ > last_unit_ || (last && end_ != last_unit_) ||
        payload_bytes > format::aligned(raw_bytes) ||
        (raw_bytes < block_bytes_ && payload_bytes != format::aligned(raw_bytes)))
      return false;
    *view = {payloads_ + begin_ * format::alignment, payload_bytes, raw_bytes};
    return true;
  }

 private:
  uint32_t stored_end(uint64_t block) const {
    uint32_t end;
    std::memcpy(&end, ends_ + block * sizeof end, sizeof end);
    return end;
  }

  const uint64_t block_bytes_, blocks_, raw_bytes_;
  const uint64_t fixed_bytes_;  // size of the payload of a whole block; 0: variable
  const uint8_t* const ends_;
  const uint8_t* const payloads_;
  const uint64_t last_unit_;
  uint64_t begin_ = 0, end_ = 0;
};

// Calls visit(BlockView) for each block. Stops with NCAST_CORRUPT at the first block whose end is not valid, or for
// which visit returns false.
template <typename Visit>
ncast_status for_each_block(const char* function, const Coding& coding, const ncast_frame_info& info,
                            const uint8_t* frame, Visit visit) {
  BlockFinder finder(coding, info, frame);
  for (uint64_t block = 0; block < finder.blocks(); ++block) {
    BlockView view;
    if (!finder.next(block, &view))
      return fail(NCAST_CORRUPT,
                  "%s: block %" PRIu64 " of %" PRIu64 " has an invalid end: %" PRIu64 ", begins at %" PRIu64
                  ", in a frame of %" PRIu64 " bytes",
                  function, block, finder.blocks(), finder.end(), finder.begin(), info.wire_bytes);
    if (!visit(view))
      return fail(NCAST_CORRUPT, "%s: block %" PRIu64 " of %" PRIu64 " does not follow the format of %s", function,
                  block, finder.blocks(), coding.row.name);
  }
  return NCAST_OK;
}

ncast_status read_whole_frame(const char* function, const void* frame, size_t frame_bytes, ncast_frame_info* info) {
  const ncast_status status = read_header(function, frame, frame_bytes, info);
  if (status != NCAST_OK) return status;
  if (frame_bytes < info->wire_bytes)
    return fail(NCAST_CORRUPT, "%s: the frame has %" PRIu64 " bytes, but only %zu are available", function,
                info->wire_bytes, frame_bytes);
  if ((info->flags & NCAST_CHECKSUM) != 0) {
    const uint64_t sum = frame_checksum(static_cast<const uint8_t*>(frame), info->wire_bytes);
    if (sum != info->checksum)
      return fail(NCAST_CORRUPT, "%s: checksum %016" PRIx64 ", but the header has %016" PRIx64, function, sum,
                  info->checksum);
  }
  return NCAST_OK;
}

}  // namespace

ncast_status encode_frame(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec, uint32_t flags,
                          const BlockContext& context, void* frame, size_t capacity, size_t* wire_bytes) {
  const ncast_status status = check_frame_arguments("ncast_encode", dtype, codec, elems);
  if (status != NCAST_OK) return status;
  if (values == nullptr && elems != 0) return fail(NCAST_INVALID_ARGUMENT, "ncast_encode: values is NULL");
  if (frame == nullptr || wire_bytes == nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "ncast_encode: %s is NULL", frame == nullptr ? "frame" : "wire_bytes");
  constexpr uint32_t both = NCAST_CHECKSUM | NCAST_NO_CHECKSUM;
  if ((flags & ~(both | NCAST_MORE | NCAST_REFERENCE)) != 0 || (flags & both) == both)
    return fail(NCAST_INVALID_ARGUMENT, "ncast_encode: invalid flags 0x%x", flags);

  const bool has_checksum = (flags & NCAST_NO_CHECKSUM) == 0;
  FrameHeader header = make_header(dtype, codec, elems, flags | (has_checksum ? uint32_t{NCAST_CHECKSUM} : 0));
  auto* bytes = static_cast<uint8_t*>(frame);
  const auto* from = static_cast<const uint8_t*>(values);
  const Coding coding(dtype, codec);
  size_t end = 0;
  if (!coding.is_copy()) {
    end = encode_blocks(header, coding, coding.coder(flags), context, from, bytes, capacity);
  } else if (ncast_bound(dtype, codec, elems) <= capacity) {
    end = sizeof header + copy_aligned(bytes + sizeof header, from, elems * ncast_dtype_bytes(dtype));
  }
  if (end == 0)
    return fail(NCAST_TOO_SMALL,
                "ncast_encode: %" PRIu64 " values of %s do not fit into a frame of %zu bytes; %zu always suffice",
                elems, ncast_dtype_name(dtype), capacity, ncast_bound(dtype, codec, elems));
  header.wire_bytes = end;
  std::memcpy(bytes, &header, sizeof header);
  if (has_checksum) {
    header.checksum = frame_checksum(bytes, end);
    std::memcpy(bytes, &header, sizeof header);
  }
  *wire_bytes = end;
  return NCAST_OK;
}

namespace {

ncast_status decode(const void* frame, size_t frame_bytes, uint32_t flags, void* values, size_t value_capacity,
                    ncast_frame_info* info_out) {
  if ((flags & ~NCAST_REFERENCE) != 0) return fail(NCAST_INVALID_ARGUMENT, "ncast_decode: invalid flags 0x%x", flags);
  ncast_frame_info info;
  const ncast_status status = read_whole_frame("ncast_decode", frame, frame_bytes, &info);
  if (status != NCAST_OK) return status;
  if (info_out != nullptr)
    if (const ncast_status copied = fill_struct("ncast_decode", "info", info, info_out)) return copied;
  if (info.raw_bytes > value_capacity)
    return fail(NCAST_TOO_SMALL, "ncast_decode: the frame decodes to %" PRIu64 " bytes, but values has room for %zu",
                info.raw_bytes, value_capacity);
  if (values == nullptr && info.raw_bytes != 0) return fail(NCAST_INVALID_ARGUMENT, "ncast_decode: values is NULL");

  const auto* bytes = static_cast<const uint8_t*>(frame);
  auto* to = static_cast<uint8_t*>(values);
  const Coding coding(info.dtype, info.codec);
  if (coding.is_copy()) {
    if (info.raw_bytes != 0) std::memcpy(to, bytes + sizeof(FrameHeader), info.raw_bytes);
    return NCAST_OK;
  }
  const BlockCoder& coder = coding.coder(flags);
  const uint8_t* const frame_end = bytes + info.wire_bytes;
  const uint8_t* const values_end = to + info.raw_bytes;
  return for_each_block("ncast_decode", coding, info, bytes, [&](const BlockView& view) {
    uint8_t* block_values = to;
    to += view.raw_bytes;
    const uint8_t* next_payload = view.payload + view.payload_bytes;
    prefetch_to_read(next_payload, std::min<size_t>(static_cast<size_t>(frame_end - next_payload), view.raw_bytes));
    prefetch_to_write(to, std::min<size_t>(static_cast<size_t>(values_end - to), view.raw_bytes));
    if (view.raw_bytes == coding.type.block_bytes)
      return coder.decode(coding.type, view.payload, view.payload_bytes, block_values);
    std::memcpy(block_values, view.payload, view.raw_bytes);
    return true;
  });
}

ncast_status inspect_blocks(const void* frame, size_t frame_bytes, uint64_t* counters, size_t count) {
  const char* function = "ncast_inspect_blocks";
  if (counters == nullptr && count != 0) return fail(NCAST_INVALID_ARGUMENT, "%s: counters is NULL", function);
  std::fill_n(counters, count, 0);
  ncast_frame_info info;
  if (const ncast_status status = read_whole_frame(function, frame, frame_bytes, &info)) return status;
  const Coding coding(info.dtype, info.codec);
  const bool variable = !coding.row.has_fixed_payload();
  std::vector<uint64_t> counted(coding.host.counter_names.size());
  if (variable || coding.host.count != nullptr) {
    const auto visit = [&](const BlockView& view) {
      const bool whole = view.raw_bytes == coding.type.block_bytes;
      if (variable && view.payload_bytes == format::aligned(view.raw_bytes)) {
        if (!counted.empty()) ++counted[0];
        return true;
      }
      return !whole || coding.host.count == nullptr ||
             coding.host.count(coding.type, view.payload, view.payload_bytes, counted.data());
    };
    const auto* bytes = static_cast<const uint8_t*>(frame);
    if (const ncast_status status = for_each_block(function, coding, info, bytes, visit)) return status;
  }
  std::copy_n(counted.begin(), std::min(count, counted.size()), counters);
  return NCAST_OK;
}

}  // namespace
}  // namespace narrowcast::codec

extern "C" {

ncast_status ncast_encode(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec, uint32_t flags,
                          void* frame, size_t capacity, size_t* wire_bytes) {
  return narrowcast::guarded("ncast_encode", [&] {
    return narrowcast::codec::encode_frame(values, dtype, elems, codec, flags, {}, frame, capacity, wire_bytes);
  });
}

ncast_status ncast_decode(const void* frame, size_t frame_bytes, uint32_t flags, void* values, size_t value_capacity,
                          ncast_frame_info* info) {
  return narrowcast::guarded("ncast_decode", [&] {
    return narrowcast::codec::decode(frame, frame_bytes, flags, values, value_capacity, info);
  });
}

ncast_status ncast_inspect_blocks(const void* frame, size_t frame_bytes, uint64_t* counters, size_t count) {
  return narrowcast::guarded("ncast_inspect_blocks",
                             [&] { return narrowcast::codec::inspect_blocks(frame, frame_bytes, counters, count); });
}

}  // extern "C"
