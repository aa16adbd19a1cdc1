// What is behind a descriptor of a file.
#pragma once

#include <string>

namespace narrowcast::store::file {

// The path of the file, which may have been removed since; empty if it has none: a memfd, or without /proc.
std::string path_of(int descriptor);

// What messages call the file that was opened by `path`: where the path only names a descriptor, as /proc/self/fd/3,
// the path behind it, and for a memfd its name.
std::string name_of(int descriptor, const std::string& path);

}  // namespace narrowcast::store::file
