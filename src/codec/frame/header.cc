#include "codec/frame/header.h"

#include <cinttypes>
#include <cstring>

#include "status/error.h"

namespace narrowcast::codec {

using format::FrameHeader;

namespace {
// Frame bytes when every block is raw: the most that a frame takes.
uint64_t raw_frame_bytes(ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  const uint64_t payload = format::aligned(elems * ncast_dtype_bytes(dtype));
  if (codec == NCAST_CODEC_RAW) return sizeof(FrameHeader) + payload;
  const auto block_elems = static_cast<uint32_t>(format::window::value_type(dtype).block_elems());
  return format::frame_layout(elems, block_elems).payload_offset + payload;
}

bool fits_a_frame(ncast_dtype dtype, uint64_t elems) {
  return elems <= format::max_raw_bytes / ncast_dtype_bytes(dtype);
}
}  // namespace

ncast_status check_frame_arguments(const char* function, ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  if (ncast_dtype_bytes(dtype) == 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: dtype %d is not a value type", function, static_cast<int>(dtype));
  if (codec == NCAST_CODEC_AUTO)
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec is NCAST_CODEC_AUTO, which only a communicator's calls take",
                function);
  if (codec != NCAST_CODEC_RAW && codec != NCAST_CODEC_WINDOW)
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec %d is not a codec", function, static_cast<int>(codec));
  if (!fits_a_frame(dtype, elems))
    return fail(NCAST_INVALID_ARGUMENT, "%s: %" PRIu64 " values of %s exceed the %" PRIu64 " bytes that a frame holds",
                function, elems, ncast_dtype_name(dtype), format::max_raw_bytes);
  return NCAST_OK;
}

FrameHeader make_header(ncast_dtype dtype, ncast_codec codec, uint64_t elems, uint32_t flags) {
  FrameHeader header{};
  header.magic = format::frame_magic;
  header.version = format::frame_version;
  header.codec = static_cast<uint8_t>(effective_codec(dtype, codec));
  header.dtype = static_cast<uint8_t>(dtype);
  header.flags = static_cast<uint8_t>(flags & (NCAST_CHECKSUM | NCAST_MORE));
  header.elems = elems;
  if (header.codec == NCAST_CODEC_WINDOW) {
    header.block_elems = static_cast<uint32_t>(format::window::value_type(dtype).block_elems());
    header.blocks = static_cast<uint32_t>(format::frame_layout(elems, header.block_elems).blocks);
  }
  return header;
}

ncast_status read_header(const char* function, const void* frame, size_t frame_bytes, ncast_frame_info* info) {
  if (frame == nullptr && frame_bytes != 0) return fail(NCAST_INVALID_ARGUMENT, "%s: frame is NULL", function);
  if (frame_bytes < sizeof(FrameHeader))
    return fail(NCAST_CORRUPT, "%s: %zu bytes are too few for a frame header of %zu", function, frame_bytes,
                sizeof(FrameHeader));
  FrameHeader header;
  std::memcpy(&header, frame, sizeof header);
  if (header.magic != format::frame_magic)
    return fail(NCAST_CORRUPT, "%s: not a frame: the magic number is 0x%08x", function, header.magic);
  if (header.version != format::frame_version)
    return fail(NCAST_CORRUPT, "%s: frame version %d, but this library reads version %d", function, header.version,
                format::frame_version);
  // As bytes first: what is not an enumerator must not become one.
  if (header.dtype > NCAST_FLOAT8_E5M2)
    return fail(NCAST_CORRUPT, "%s: frame header: value type %d", function, header.dtype);
  if (header.codec > NCAST_CODEC_WINDOW)
    return fail(NCAST_CORRUPT, "%s: frame header: codec %d", function, header.codec);
  const auto dtype = static_cast<ncast_dtype>(header.dtype);
  const auto codec = static_cast<ncast_codec>(header.codec);
  if (effective_codec(dtype, codec) != codec)
    return fail(NCAST_CORRUPT, "%s: frame header: codec %d for %s", function, header.codec, ncast_dtype_name(dtype));
  if ((header.flags & ~(NCAST_CHECKSUM | NCAST_MORE)) != 0 ||
      (header.reserved[0] | header.reserved[1] | header.reserved[2]) != 0)
    return fail(NCAST_CORRUPT, "%s: frame header: reserved bits are set", function);
  if ((header.flags & NCAST_CHECKSUM) == 0 && header.checksum != 0)
    return fail(NCAST_CORRUPT, "%s: frame header: a checksum without its flag", function);
  if (!fits_a_frame(dtype, header.elems))
    return fail(NCAST_CORRUPT, "%s: frame header: %" PRIu64 " values of %s are more than a frame holds", function,
                header.elems, ncast_dtype_name(dtype));
  const FrameHeader expected = make_header(dtype, codec, header.elems, header.flags);
  if (header.block_elems != expected.block_elems || header.blocks != expected.blocks)
    return fail(NCAST_CORRUPT, "%s: frame header: %u blocks of %u values for %" PRIu64 " values", function,
                header.blocks, header.block_elems, header.elems);
  const uint64_t most = raw_frame_bytes(dtype, codec, header.elems);
  const uint64_t least = codec == NCAST_CODEC_RAW
                             ? most
                             : format::frame_layout(header.elems, header.block_elems).payload_offset +
                                   uint64_t{header.blocks} * format::alignment;
  if (header.wire_bytes % format::alignment != 0 || header.wire_bytes < least || header.wire_bytes > most)
    return fail(NCAST_CORRUPT, "%s: frame header: %" PRIu64 " bytes on the wire for %" PRIu64 " values", function,
                header.wire_bytes, header.elems);
  info->elems = header.elems;
  info->raw_bytes = header.elems * ncast_dtype_bytes(dtype);
  info->wire_bytes = header.wire_bytes;
  info->checksum = header.checksum;
  info->blocks = header.blocks;
  info->block_elems = header.block_elems;
  info->flags = header.flags;
  info->version = header.version;
  info->codec = codec;
  info->dtype = dtype;
  return NCAST_OK;
}

}  // namespace narrowcast::codec

extern "C" {

size_t ncast_bound(ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  using namespace narrowcast;
  if (ncast_dtype_bytes(dtype) == 0 || (codec != NCAST_CODEC_RAW && codec != NCAST_CODEC_WINDOW)) return 0;
  if (!codec::fits_a_frame(dtype, elems)) return 0;
  return codec::raw_frame_bytes(dtype, codec::effective_codec(dtype, codec), elems);
}

ncast_status ncast_inspect(const void* frame, size_t frame_bytes, ncast_frame_info* info) {
  using namespace narrowcast;
  if (info == nullptr) return fail(NCAST_INVALID_ARGUMENT, "ncast_inspect: info is NULL");
  return codec::read_header("ncast_inspect", frame, frame_bytes, info);
}

}  // extern "C"
