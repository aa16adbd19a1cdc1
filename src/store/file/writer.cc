#include "store/file/writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "status/error.h"
#include "store/file/checksum.h"
#include "store/file/descriptor.h"
#include "store/file/header.h"

namespace narrowcast::store::file {
namespace {

// Of a Spill. Blocks are written one by one: a builder that writes many at a time leaves its GPU without work.
constexpr uint64_t block_bytes = 1u << 20, most_blocks = 16;

ncast_status write_at(int file, const uint8_t* bytes, uint64_t count, uint64_t offset) {
  while (count != 0) {
    const ssize_t written = pwrite(file, bytes, std::min<uint64_t>(count, 1u << 30), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return fail(NCAST_SYSTEM_ERROR, "cannot write the table file: %s", std::strerror(errno));
    }
    bytes += written;
    offset += static_cast<uint64_t>(written);
    count -= static_cast<uint64_t>(written);
  }
  return NCAST_OK;
}

}  // namespace

Spill::~Spill() {
  if (file_ >= 0) close(file_);
}

// The folder of the table file has the space for a table; /tmp may not.
ncast_status Spill::open_file(int folder_of) {
  const std::string path = file::path_of(folder_of);
  if (const size_t slash = path.rfind('/'); slash != path.npos) {
    const std::string folder = path.substr(0, std::max<size_t>(slash, 1));
    file_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  }
  // A file system without O_TMPFILE, or a table in memory.
  if (file_ < 0) file_ = memfd_create("narrowcast-store", MFD_CLOEXEC);
  if (file_ < 0) return fail(NCAST_SYSTEM_ERROR, "cannot create a temporary file: %s", std::strerror(errno));
  return NCAST_OK;
}

ncast_status Spill::begin_block(int folder_of) {
  if (blocks_.size() < most_blocks) {
    blocks_.emplace_back().reserve(block_bytes);
    return NCAST_OK;
  }
  if (file_ < 0) {
    if (ncast_status status = open_file(folder_of)) return status;
  }
  std::vector<uint8_t> block = std::move(blocks_.front());
  blocks_.pop_front();
  if (ncast_status status = write_at(file_, block.data(), block.size(), spilled_)) return status;
  spilled_ += block.size();
  block.clear();
  blocks_.push_back(std::move(block));
  return NCAST_OK;
}

ncast_status Spill::append(int folder_of, const void* bytes, uint64_t count) {
  const auto* from = static_cast<const uint8_t*>(bytes);
  while (count != 0) {
    if (blocks_.empty() || blocks_.back().size() == block_bytes) {
      if (ncast_status status = begin_block(folder_of)) return status;
    }
    std::vector<uint8_t>& block = blocks_.back();
    const uint64_t part = std::min(count, block_bytes - block.size());
    block.insert(block.end(), from, from + part);
    from += part;
    count -= part;
  }
  return NCAST_OK;
}

ncast_status Spill::read_file(uint64_t offset, uint8_t* bytes, uint64_t count) const {
  while (count != 0) {
    const ssize_t got = pread(file_, bytes, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(NCAST_SYSTEM_ERROR, "cannot read a temporary file: %s", std::strerror(errno));
    bytes += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<uint64_t>(got);
  }
  return NCAST_OK;
}

template <typename Take>
ncast_status Spill::read(Take take) {
  std::vector<uint8_t> buffer(std::min(spilled_, block_bytes));
  for (uint64_t at = 0; at < spilled_; at += buffer.size()) {
    const uint64_t count = std::min<uint64_t>(buffer.size(), spilled_ - at);
    if (ncast_status status = read_file(at, buffer.data(), count)) return status;
    if (ncast_status status = take(buffer.data(), count)) return status;
  }
  for (const std::vector<uint8_t>& block : blocks_)
    if (ncast_status status = take(block.data(), block.size())) return status;
  return NCAST_OK;
}

ncast_status Writer::write(const uint8_t* bytes, uint64_t count) {
  if (ncast_status status = write_at(file_, bytes, count, position_)) return status;
  position_ += count;
  return NCAST_OK;
}

// Skipped bytes are zero.
void Writer::begin_section(uint32_t section) {
  section_ = section;
  header_.sections[section] = {aligned(position_, page_bytes), 0, 0};
}

ncast_status Writer::append_segmented(const uint8_t* bytes, uint64_t count) {
  Section& section = header_.sections[section_];
  if (count == 0) return NCAST_OK;
  if (section.bytes == 0) position_ = section.offset;
  if (ncast_status status = write(bytes, count)) return status;
  section.bytes += count;
  while (count != 0) {
    if (segment_.empty() && count >= segment_bytes) {
      checksums_.push_back(checksum(bytes, segment_bytes));
      bytes += segment_bytes;
      count -= segment_bytes;
      continue;
    }
    const uint64_t part = std::min(count, segment_bytes - segment_.size());
    segment_.insert(segment_.end(), bytes, bytes + part);
    bytes += part;
    count -= part;
    if (segment_.size() == segment_bytes) end_section();
  }
  return NCAST_OK;
}

void Writer::end_section() {
  if (!segment_.empty()) checksums_.push_back(checksum(segment_.data(), segment_.size()));
  segment_.clear();
}

ncast_status Writer::write_small(uint32_t section, const uint8_t* bytes, uint64_t count) {
  begin_section(section);
  if (count != 0) position_ = header_.sections[section].offset;
  header_.sections[section].bytes = count;
  header_.sections[section].checksum = checksum(bytes, count);
  return write(bytes, count);
}

ncast_status Writer::write_spill(uint32_t section, Spill& spill) {
  end_section();
  begin_section(section);
  return spill.read([&](const uint8_t* bytes, uint64_t count) { return append_segmented(bytes, count); });
}

ncast_status Writer::begin(const Header& header, const std::vector<uint8_t>& model_bytes, const std::string& text) {
  header_ = header;
  header_.magic = magic;
  header_.version = version;
  header_.header_bytes = page_bytes;
  header_.entries = 0;
  position_ = page_bytes;
  if (ncast_status status = write_small(model, model_bytes.data(), model_bytes.size())) return status;
  if (ncast_status status = write_small(metadata, reinterpret_cast<const uint8_t*>(text.data()), text.size()))
    return status;
  begin_section(data);
  return NCAST_OK;
}

ncast_status Writer::append_data(const uint8_t* bytes, uint64_t count) { return append_segmented(bytes, count); }

DataRun Writer::take_data(uint8_t* bytes, uint64_t count) {
  Section& section = header_.sections[data];
  const uint64_t left_over = segment_.size();
  uint8_t* const begin = bytes - left_over;
  if (left_over != 0) std::memcpy(begin, segment_.data(), left_over);
  const DataRun run{begin, (left_over + count) / segment_bytes, (section.bytes - left_over) / segment_bytes};
  segment_.assign(begin + run.segments * segment_bytes, bytes + count);
  segment_is_written_ = segment_.empty();
  section.bytes += count;
  position_ = section.offset + section.bytes;
  checksums_.resize(run.number + run.segments);
  return run;
}

ncast_status Writer::write_data(const DataRun& run, uint64_t first_segment, uint64_t segments) {
  const uint8_t* const bytes = run.bytes + first_segment * segment_bytes;
  const uint64_t number = run.number + first_segment;
  for (uint64_t i = 0; i < segments; ++i) checksums_[number + i] = checksum(bytes + i * segment_bytes, segment_bytes);
  return write_at(file_, bytes, segments * segment_bytes, header_.sections[data].offset + number * segment_bytes);
}

ncast_status Writer::number_entries(uint64_t count, uint64_t* first) {
  if (count > max_entries - header_.entries)
    return fail(NCAST_UNSUPPORTED, "the table needs too many overflow entries");
  *first = header_.entries;
  header_.entries += count;
  return NCAST_OK;
}

ncast_status Writer::append_entries(std::span<const uint64_t> rows, std::span<const uint8_t> entries) {
  if (ncast_status status = entries_.append(file_, entries.data(), entries.size())) return status;
  return entry_rows_.append(file_, rows.data(), rows.size_bytes());
}

ncast_status Writer::finish(uint64_t rows) {
  header_.rows = rows;
  header_.capacity = std::max(header_.capacity, rows);
  if (!segment_is_written_) {
    if (ncast_status status = write_at(file_, segment_.data(), segment_.size(), position_ - segment_.size()))
      return status;
  }
  if (ncast_status status = write_spill(offsets, offsets_)) return status;
  if (ncast_status status = write_spill(entries, entries_)) return status;
  if (ncast_status status = write_spill(entry_rows, entry_rows_)) return status;
  end_section();
  if (ncast_status status = write_small(checksums, reinterpret_cast<const uint8_t*>(checksums_.data()),
                                        checksums_.size() * sizeof(uint64_t)))
    return status;
  std::vector<uint8_t> page(page_bytes);
  std::memcpy(page.data(), &header_, sizeof header_);
  const uint64_t sum = header_checksum(page.data());
  std::memcpy(page.data() + page_bytes - sizeof sum, &sum, sizeof sum);
  if (ncast_status status = write_at(file_, page.data(), page.size(), 0)) return status;
  // A table in memory cannot be synchronised with a disk.
  if (fsync(file_) != 0 && errno != EINVAL && errno != EROFS)
    return fail(NCAST_SYSTEM_ERROR, "cannot write the table file: %s", std::strerror(errno));
  return NCAST_OK;
}

}  // namespace narrowcast::store::file
