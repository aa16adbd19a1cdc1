// Reads files that users name.
#pragma once

#include <cstdint>
#include <string>

namespace narrowcast::files {

// Reads a whole regular file. Anything else, such as a FIFO that nobody writes to or an endless device, is an error, as
// are files of more than max_bytes. Returns why it failed; empty if it has not.
std::string read_file(const std::string& path, uint64_t max_bytes, std::string* content);

}  // namespace narrowcast::files
