#include "store/table/open/table_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "status/error.h"
#include "store/file/checksum.h"
#include "store/file/descriptor.h"
#include "store/file/header.h"

namespace narrowcast::store {
namespace {

// Reads a section that fits into memory easily, and compares its checksum.
ncast_status read_small(const TableFile& file, const Table& table, uint32_t section, std::vector<uint8_t>* bytes) {
  const file::Section& place = table.header.sections[section];
  bytes->resize(place.bytes);
  if (ncast_status status = file.read(place.offset, bytes->data(), bytes->size())) return status;
  if (file::checksum(bytes->data(), bytes->size()) != place.checksum) {
    return fail(NCAST_CORRUPT, "%s: the section '%s' is damaged: its checksum does not match", table.name.c_str(),
                file::section_names[section]);
  }
  return NCAST_OK;
}

}  // namespace

TableFile::~TableFile() {
  if (file_ >= 0) close(file_);
}

ncast_status TableFile::open(const std::string& path) {
  // Opening a named pipe would wait for a writer.
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0 || fstat(file_, &about_) != 0)
    return fail(NCAST_SYSTEM_ERROR, "%s: %s", path.c_str(), std::strerror(errno));
  name_ = file::name_of(file_, path);
  if (!S_ISREG(about_.st_mode)) return fail(NCAST_SYSTEM_ERROR, "%s is not a regular file", name_.c_str());
  return NCAST_OK;
}

ncast_status TableFile::read(uint64_t offset, uint8_t* bytes, uint64_t count) const {
  while (count != 0) {
    const ssize_t got = pread(file_, bytes, std::min<uint64_t>(count, 1u << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(NCAST_SYSTEM_ERROR, "%s: %s", name_.c_str(), std::strerror(errno));
    if (got == 0) return fail(NCAST_CORRUPT, "%s became shorter while it was read", name_.c_str());
    bytes += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<uint64_t>(got);
  }
  return NCAST_OK;
}

digest::Sha256 TableFile::identity() const {
  const uint64_t parts[] = {about_.st_dev,
                            about_.st_ino,
                            static_cast<uint64_t>(about_.st_size),
                            static_cast<uint64_t>(about_.st_mtim.tv_sec),
                            static_cast<uint64_t>(about_.st_mtim.tv_nsec),
                            geteuid()};
  return digest::sha256("narrowcast table segment", {reinterpret_cast<const char*>(parts), sizeof parts});
}

std::string TableFile::shared_name() const {
  return std::string(bootstrap::segment_prefix) + "store." + digest::hex(identity(), 32);
}

ncast_status read_description(const TableFile& file, Table& table) {
  std::vector<uint8_t> bytes(file::page_bytes);
  if (file.bytes() >= file::page_bytes) {
    if (ncast_status status = file.read(0, bytes.data(), bytes.size())) return status;
  }
  if (ncast_status status = file::read_header(table.name, bytes.data(), file.bytes(), &table.header)) return status;
  const file::Header& header = table.header;
  if (ncast_status status = read_small(file, table, file::metadata, &bytes)) return status;
  table.metadata.assign(bytes.begin(), bytes.end());
  if (ncast_status status = read_small(file, table, file::checksums, &bytes)) return status;
  std::vector<uint64_t> checksums(bytes.size() / sizeof(uint64_t));
  if (!bytes.empty()) std::memcpy(checksums.data(), bytes.data(), bytes.size());
  table.checks.reset(header, std::move(checksums));
  if (ncast_status status = read_small(file, table, file::model, &bytes)) return status;
  if (header.layout == file::blocks_layout) {
    if (!bytes.empty()) return fail(NCAST_CORRUPT, "%s: a table of blocks has no model", table.name.c_str());
  } else {
    std::string problem;
    const std::optional<RowModel> model = RowModel::parse(bytes, &problem);
    if (!model) return fail(NCAST_CORRUPT, "%s: the model of the codec: %s", table.name.c_str(), problem.c_str());
    const RowShape shape{static_cast<ncast_dtype>(header.dtype), header.row_elems()};
    table.model = std::make_shared<const RowModel>(*model);
    if (table.model->shape() != shape || table.model->uncoded() != (header.uncoded != 0))
      return fail(NCAST_CORRUPT, "%s: the model of the codec is for other rows", table.name.c_str());
  }
  return NCAST_OK;
}

}  // namespace narrowcast::store
