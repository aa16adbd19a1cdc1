#include "codec/frame/header.h"

#include <cinttypes>
#include <cstring>

#include "status/error.h"
#include "status/sized_struct.h"

namespace narrowcast::codec {

using format::FrameHeader;

namespace {
bool fits_a_frame(ncast_dtype dtype, uint64_t elems) {
  return elems <= format::max_raw_bytes / ncast_dtype_bytes(dtype);
}
}  // namespace

ncast_status check_frame_arguments(const char* function, ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  if (ncast_dtype_bytes(dtype) == 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: dtype %d is not a value type", function, static_cast<int>(dtype));
  if (const ncast_status status = check(function, codec)) return status;
  if (!fits_a_frame(dtype, elems))
    return fail(NCAST_INVALID_ARGUMENT, "%s: %" PRIu64 " values of %s exceed the %" PRIu64 " bytes that a frame holds",
                function, elems, ncast_dtype_name(dtype), format::max_raw_bytes);
  return NCAST_OK;
}

FrameHeader make_header(ncast_dtype dtype, ncast_codec codec, uint64_t elems, uint32_t flags) {
  codec = explicit_parameters(effective_codec(dtype, codec));
  FrameHeader header{};
  header.magic = format::frame_magic;
  header.version = format::frame_version;
  header.codec = id_of(codec);
  header.dtype = static_cast<uint8_t>(dtype);
  header.flags = static_cast<uint8_t>(flags & (NCAST_CHECKSUM | NCAST_MORE));
  header.elems = elems;
  header.parameters = codec >> 16;
  if (!find_row(codec)->has_fixed_payload()) {
    header.block_elems = block_type(dtype, codec).block_elems();
    header.blocks = static_cast<uint32_t>(format::frame_layout(elems, header.block_elems).blocks);
  }
  return header;
}

FrameBytes frame_bytes_of(ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  codec = effective_codec(dtype, codec);
  const uint64_t raw_bytes = elems * ncast_dtype_bytes(dtype);
  const Row& row = *find_row(codec);
  const BlockType type = block_type(dtype, codec);
  if (row.has_fixed_payload()) {
    // Whole blocks, then a short one that is stored raw.
    const uint64_t payloads = raw_bytes / type.block_bytes * host_of(row).payload_bytes(type);
    const uint64_t bytes = sizeof(FrameHeader) + payloads + format::aligned(raw_bytes % type.block_bytes);
    return {bytes, bytes};
  }
  const format::FrameLayout layout = format::frame_layout(elems, type.block_elems());
  return {layout.payload_offset + layout.blocks * format::alignment,
          layout.payload_offset + format::aligned(raw_bytes)};
}

ncast_status read_header(const char* function, const void* frame, size_t frame_bytes, ncast_frame_info* info) {
  if (frame == nullptr && frame_bytes != 0) return fail(NCAST_INVALID_ARGUMENT, "%s: frame is NULL", function);
  if (frame_bytes < sizeof(FrameHeader))
    return fail(NCAST_CORRUPT, "%s: %zu bytes are too few for a frame header of %zu bytes", function, frame_bytes,
                sizeof(FrameHeader));
  FrameHeader header;
  std::memcpy(&header, frame, sizeof header);
  if (header.magic != format::frame_magic)
    return fail(NCAST_CORRUPT, "%s: not a frame: the magic number is 0x%08x", function, header.magic);
  if (header.version != format::frame_version)
    return fail(NCAST_CORRUPT, "%s: frame version %d, but this library reads version %d", function, header.version,
                format::frame_version);
  // Check the bytes before they are converted to enumerators.
  if (header.dtype > NCAST_FLOAT8_E5M2)
    return fail(NCAST_CORRUPT, "%s: frame header: unknown value type %d", function, header.dtype);
  const auto dtype = static_cast<ncast_dtype>(header.dtype);
  const ncast_codec codec = header.codec | header.parameters << 16;
  if (const Row* const row = find_row(header.codec); row == nullptr && is_of_user(header.codec))
    return fail(NCAST_CORRUPT, "%s: frame header: codec %d is that of a user, whose library is not registered",
                function, header.codec);
  else if (row == nullptr)
    return fail(NCAST_CORRUPT, "%s: frame header: unknown codec %d", function, header.codec);
  else if (row->type(dtype) == nullptr)
    return fail(NCAST_CORRUPT, "%s: frame header: codec %s does not support %s", function, row->name,
                ncast_dtype_name(dtype));
  if ((header.flags & ~(NCAST_CHECKSUM | NCAST_MORE)) != 0 || (header.reserved[0] | header.reserved[1]) != 0)
    return fail(NCAST_CORRUPT, "%s: frame header: reserved bits are set", function);
  if (header.parameters >> 48 != 0 || check(function, codec) != NCAST_OK || explicit_parameters(codec) != codec)
    return fail(NCAST_CORRUPT, "%s: frame header: invalid parameters 0x%012" PRIx64 " of codec %s", function,
                header.parameters, find_row(codec)->name);
  if ((header.flags & NCAST_CHECKSUM) == 0 && header.checksum != 0)
    return fail(NCAST_CORRUPT, "%s: frame header: a checksum without its flag", function);
  if (!fits_a_frame(dtype, header.elems))
    return fail(NCAST_CORRUPT, "%s: frame header: %" PRIu64 " values of %s exceed the maximum of a frame", function,
                header.elems, ncast_dtype_name(dtype));
  const FrameHeader expected = make_header(dtype, codec, header.elems, header.flags);
  if (header.block_elems != expected.block_elems || header.blocks != expected.blocks)
    return fail(NCAST_CORRUPT, "%s: frame header: %u blocks of %u values for %" PRIu64 " values", function,
                header.blocks, header.block_elems, header.elems);
  const FrameBytes allowed = frame_bytes_of(dtype, codec, header.elems);
  if (header.wire_bytes % format::alignment != 0 || header.wire_bytes < allowed.least ||
      header.wire_bytes > allowed.most)
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
  info->codec = canonical(codec);
  info->dtype = dtype;
  return NCAST_OK;
}

}  // namespace narrowcast::codec

extern "C" {

size_t ncast_bound(ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  using namespace narrowcast;
  if (codec::check_frame_arguments("ncast_bound", dtype, codec, elems) != NCAST_OK) return 0;
  return codec::frame_bytes_of(dtype, codec, elems).most;
}

ncast_status ncast_inspect(const void* frame, size_t frame_bytes, ncast_frame_info* info) {
  using namespace narrowcast;
  const char* function = "ncast_inspect";
  if (info == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: info is NULL", function);
  ncast_frame_info header;
  if (const ncast_status status = codec::read_header(function, frame, frame_bytes, &header)) return status;
  return fill_struct(function, "info", header, info);
}

}  // extern "C"
