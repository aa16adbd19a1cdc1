// Reading and checking the header of a table file.
#pragma once

#include <string>

#include "narrowcast/types.h"
#include "store/file/layout.h"

namespace narrowcast::store::file {

// Layout numbers in the header.
enum : uint8_t { stride_layout = 1, packed_layout = 2, blocks_layout = 3 };

// XXH3 of the header page up to its last eight bytes.
uint64_t header_checksum(const uint8_t* page);

// Checks the header page of a file of file_bytes bytes, which may be hostile: all numbers and all sections. Afterwards
// every section lies within the file and has the size that the other numbers require.
//   name: of the file, for messages.
// Errors: CORRUPT; UNSUPPORTED for a version that this library does not know.
ncast_status read_header(const std::string& name, const uint8_t* page, uint64_t file_bytes, Header* header);

// Bytes of a row of the table; 0 if the shape is not valid.
uint64_t row_bytes_of(const Header& header);
// Frames of a table in layout blocks.
uint64_t frames_of(const Header& header);
// The number of checksums before those of a segmented section.
uint64_t first_checksum(const Header& header, uint32_t section);

}  // namespace narrowcast::store::file
