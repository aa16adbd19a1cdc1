#include "store/file/header.h"

#include <bit>
#include <cinttypes>
#include <cstring>

#include "status/error.h"
#include "store/file/checksum.h"

namespace narrowcast::store::file {
namespace {

// What a section must have; UINT64_MAX: any size.
uint64_t required_bytes(const Header& header, uint32_t section) {
  const bool blocks = header.layout == blocks_layout;
  switch (section) {
    case data: return header.layout == stride_layout ? header.rows * header.stride : UINT64_MAX;
    case offsets:
      if (header.layout == packed_layout) return 4 * (header.rows + 1);
      return blocks ? 8 * (frames_of(header) + 1) : 0;
    case entries: return header.entries * header.entry_stride;
    case entry_rows: return 8 * header.entries;
    case checksums: return 8 * first_checksum(header, checksums);
    default: return UINT64_MAX;
  }
}

const char* fault_of_numbers(const Header& header) {
  const uint64_t row_bytes = row_bytes_of(header);
  if (row_bytes == 0) return "its value type or row shape is not valid";
  if (header.rows > max_rows || header.capacity > max_rows || header.capacity < header.rows)
    return "its numbers of rows are not valid";
  if (header.uncoded > 1 || (header.uncoded == 1 && header.layout != stride_layout)) return "its layout is not valid";
  if (header.uncoded == 1 && header.entries != 0) return "plain rows have no overflow entries";
  if (header.layout == blocks_layout) {
    if (header.stride == 0 || header.stride > max_frame_elems || header.entry_stride != 0 || header.entries != 0 ||
        header.spare != 0 || header.capacity != header.rows || header.unit != 0)
      return "its numbers for the layout blocks are not valid";
    return header.rows > UINT64_MAX / 16 / row_bytes ? "it is too large" : nullptr;
  }
  const uint64_t entry_bytes = aligned(header.uncoded != 0 ? row_bytes : row_bytes + 4, slot_align);
  if (header.entry_stride != entry_bytes) return "the stride of its overflow entries is not valid";
  if (header.entries > max_entries || header.spare > max_entries || header.entries > header.rows)
    return "its numbers of overflow entries are not valid";
  if (header.layout == packed_layout) {
    if (!std::has_single_bit(header.unit) || header.unit < 16 || header.unit > page_bytes || header.stride != 0)
      return "its unit is not valid";
  } else if (header.layout == stride_layout) {
    const bool fits = header.uncoded != 0 ? header.stride == row_bytes
                                          : header.stride != 0 && header.stride % slot_align == 0 &&
                                                header.stride <= header.entry_stride;
    if (!fits || header.unit != 0) return "its stride is not valid";
  } else {
    return "its layout is unknown";
  }
  // So that no product of these numbers overflows.
  return header.capacity > UINT64_MAX / 16 / header.entry_stride ? "it is too large" : nullptr;
}

}  // namespace

uint64_t header_checksum(const uint8_t* page) { return checksum(page, page_bytes - 8); }

uint64_t row_bytes_of(const Header& header) {
  const uint64_t value_bytes = ncast_dtype_bytes(static_cast<ncast_dtype>(header.dtype));
  if (value_bytes == 0 || header.row_rank > max_row_rank) return 0;
  uint64_t bytes = value_bytes;
  for (uint32_t i = 0; i < max_row_rank; ++i) {
    const uint64_t extent = header.row_shape[i];
    if (i >= header.row_rank) {
      if (extent != 0) return 0;
    } else if (extent == 0 || extent > max_row_bytes / bytes) {
      return 0;
    } else {
      bytes *= extent;
    }
  }
  return bytes;
}

uint64_t frames_of(const Header& header) {
  const uint64_t elems = header.rows * header.row_elems();
  return (elems + header.stride - 1) / header.stride;
}

uint64_t first_checksum(const Header& header, uint32_t section) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < section; ++i) {
    if (is_segmented(i)) count += segments_of(header.sections[i].bytes);
  }
  return count;
}

ncast_status read_header(const std::string& name, const uint8_t* page, uint64_t file_bytes, Header* header) {
  if (file_bytes < page_bytes) return fail(NCAST_CORRUPT, "%s is not a table file: it is too short", name.c_str());
  std::memcpy(header, page, sizeof *header);
  if (header->magic != magic) return fail(NCAST_CORRUPT, "%s is not a table file", name.c_str());
  if (header->version != version) {
    return fail(NCAST_UNSUPPORTED, "%s is a table file of version %u, which this version of the library does not know",
                name.c_str(), header->version);
  }
  uint64_t checksum;
  std::memcpy(&checksum, page + page_bytes - 8, sizeof checksum);
  if (checksum != header_checksum(page))
    return fail(NCAST_CORRUPT, "%s: the header is damaged: its checksum does not match", name.c_str());
  for (uint64_t i = sizeof *header; i < page_bytes - 8; ++i) {
    if (page[i] != 0)
      return fail(NCAST_CORRUPT, "%s: reserved byte %" PRIu64 " of the header is not 0", name.c_str(), i);
  }
  if (header->header_bytes != page_bytes) return fail(NCAST_CORRUPT, "%s: the header is not valid", name.c_str());
  if (const char* fault = fault_of_numbers(*header)) return fail(NCAST_CORRUPT, "%s: %s", name.c_str(), fault);
  uint64_t end = page_bytes;
  for (uint32_t i = 0; i < section_count; ++i) {
    const Section& section = header->sections[i];
    const uint64_t required = required_bytes(*header, i);
    const bool small = i == model || i == metadata;
    const bool is_within = section.bytes <= file_bytes && section.offset <= file_bytes - section.bytes;
    if (section.offset != aligned(end, page_bytes) || (section.bytes != 0 && !is_within)) {
      return fail(NCAST_CORRUPT, "%s is truncated or damaged: its section '%s' is not within the %" PRIu64 " bytes",
                  name.c_str(), section_names[i], file_bytes);
    }
    if ((required != UINT64_MAX && section.bytes != required) || (small && section.bytes > max_small_section_bytes) ||
        (is_segmented(i) && section.checksum != 0) ||
        (i == data && header->layout == packed_layout &&
         (section.bytes % header->unit != 0 || section.bytes / header->unit > UINT32_MAX))) {
      return fail(NCAST_CORRUPT, "%s: the size of its section '%s' is not valid", name.c_str(), section_names[i]);
    }
    if (section.bytes != 0) end = section.offset + section.bytes;
  }
  if (end != file_bytes)
    return fail(NCAST_CORRUPT, "%s has %" PRIu64 " bytes, but its header says %" PRIu64, name.c_str(), file_bytes, end);
  return NCAST_OK;
}

}  // namespace narrowcast::store::file
