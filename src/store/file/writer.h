// Writes a table file front to back.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "narrowcast/types.h"
#include "store/file/layout.h"

namespace narrowcast::store::file {

// Bytes of a section that is written behind the others. The last ones are in memory, up to a limit, and those before in
// a file without a name.
class Spill {
 public:
  Spill() = default;
  Spill(const Spill&) = delete;
  Spill& operator=(const Spill&) = delete;
  ~Spill();

  // folder: a descriptor of a file in the folder where the file without a name is created.
  ncast_status append(int folder_of, const void* bytes, uint64_t count);
  // Calls take(bytes, count), which returns a status, for all bytes in order.
  template <typename Take>
  ncast_status read(Take take);

 private:
  ncast_status begin_block(int folder_of);
  ncast_status open_file(int folder_of);
  ncast_status read_file(uint64_t offset, uint8_t* bytes, uint64_t count) const;

  int file_ = -1;
  uint64_t spilled_ = 0;
  std::deque<std::vector<uint8_t>> blocks_;  // the last one has space
};

// Full segments of the section `data` that have to be written.
struct DataRun {
  const uint8_t* bytes = nullptr;
  uint64_t segments = 0;
  uint64_t number = 0;  // of the first segment in the section
};

// A file is written in the order begin, any number of the appends, finish. After an error the file is not valid.
class Writer {
 public:
  // file: a descriptor of an empty regular file, which stays the caller's.
  explicit Writer(int file) : file_(file) {}

  // header: everything but the sections, and the numbers that are known at the end.
  ncast_status begin(const Header& header, const std::vector<uint8_t>& model, const std::string& metadata);
  // More bytes of the section `data`.
  ncast_status append_data(const uint8_t* bytes, uint64_t count);
  // The same for threads. take_data() takes the next bytes, with segment_bytes of writable space in front of them for
  // those that the last call left over because they did not fill a segment. It returns the segments that are full now.
  // write_data() writes a part of them, on any thread, before finish(). The bytes are used until then.
  DataRun take_data(uint8_t* bytes, uint64_t count);
  ncast_status write_data(const DataRun& run, uint64_t first_segment, uint64_t segments);
  // More bytes of the section `offsets`.
  ncast_status append_offsets(const void* bytes, uint64_t count) { return offsets_.append(file_, bytes, count); }
  // Numbers for so many overflow entries, the first in *first.
  ncast_status number_entries(uint64_t count, uint64_t* first);
  // Entries in the order of their numbers, of entry_stride bytes each, end to end, and their rows.
  ncast_status append_entries(std::span<const uint64_t> rows, std::span<const uint8_t> entries);
  // Writes the other sections and the header, and waits until the file is on the disk. rows: in the table.
  ncast_status finish(uint64_t rows);

  const Header& header() const { return header_; }
  uint64_t file_bytes() const { return position_; }
  uint64_t data_bytes() const { return header_.sections[data].bytes; }
  uint64_t entry_count() const { return header_.entries; }

 private:
  ncast_status write(const uint8_t* bytes, uint64_t count);
  void begin_section(uint32_t section);
  ncast_status append_segmented(const uint8_t* bytes, uint64_t count);
  void end_section();
  ncast_status write_small(uint32_t section, const uint8_t* bytes, uint64_t count);
  ncast_status write_spill(uint32_t section, Spill& spill);

  int file_;
  Header header_ = {};
  uint64_t position_ = 0;  // of the next byte
  uint32_t section_ = 0;
  std::vector<uint8_t> segment_;    // bytes of the last segment, until it is complete
  bool segment_is_written_ = true;  // false: by take_data()
  std::vector<uint64_t> checksums_;
  Spill offsets_, entries_, entry_rows_;
};

}  // namespace narrowcast::store::file
