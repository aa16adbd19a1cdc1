// The file of a table that is opened.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <utility>

#include "digest/sha256.h"
#include "store/table/table.h"

namespace narrowcast::store {

// The destructor closes it.
class TableFile {
 public:
  TableFile() = default;
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;
  ~TableFile();

  // Errors: SYSTEM_ERROR.
  ncast_status open(const std::string& path);
  // Errors: SYSTEM_ERROR; CORRUPT if the file ends before.
  ncast_status read(uint64_t offset, uint8_t* bytes, uint64_t count) const;

  // For messages.
  const std::string& name() const { return name_; }
  int descriptor() const { return file_; }
  // The descriptor, which the caller closes.
  int release() { return std::exchange(file_, -1); }
  uint64_t bytes() const { return static_cast<uint64_t>(about_.st_size); }
  // Differs for every file, every version of it and every user.
  digest::Sha256 identity() const;
  // The name of shared memory for the table. Other users can guess it and so prevent the use of shared memory, but
  // not more: SharedMemory opens only segments of this user.
  std::string shared_name() const;

 private:
  std::string name_;
  int file_ = -1;
  struct stat about_ = {};
};

// Reads and checks everything but the rows: header, metadata, checksums and model.
ncast_status read_description(const TableFile& file, Table& table);

}  // namespace narrowcast::store
