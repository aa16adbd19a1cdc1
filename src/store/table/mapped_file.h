// A table file that is read through its pages, although others may change or truncate it meanwhile.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "narrowcast/types.h"
#include "store/table/bus_errors.h"
#include "store/table/memory.h"

namespace narrowcast::store {

struct Table;

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Maps a file, whose descriptor the object takes over. Called in a BusErrorScope, as the functions below.
  ncast_status map(int file, const std::string& name);

  uint8_t* data() const { return mapping_.data(); }
  uint64_t bytes() const { return mapping_.bytes(); }

  // Called before a read. If the file was written since the last call, what was verified is verified again.
  //   times_written: how often the file was written while it was open, as far as it was noticed.
  // Errors: CORRUPT if the file has another size or header, or a damaged index, or if pages could not be read;
  // SYSTEM_ERROR if the program has closed its descriptor.
  ncast_status check_before(Table& table, uint64_t* times_written);
  // Called after a read. Errors: as above, and CORRUPT if the file was written since check_before().
  ncast_status check_after(Table& table, uint64_t times_written);

 private:
  // Whether the descriptor is still that of the file: programs may close all descriptors, and open others.
  bool is_own_file(struct stat* now) const;
  ncast_status look(const Table& table);

  int file_ = -1;
  Mapping mapping_;
  std::unique_ptr<WatchedMapping> watched_;
  std::vector<uint8_t> header_;  // the first page
  struct stat about_ = {};
  std::mutex mutex_;      // of what follows and about_
  bool is_fresh_ = true;  // written so recently that the next write may not change its time
  uint64_t times_written_ = 0;
};

}  // namespace narrowcast::store
