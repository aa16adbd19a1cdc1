// Folders in a user's cache, which processes of the user share.
#pragma once

#include <sys/uio.h>

#include <span>
#include <string>

namespace narrowcast::files {

// narrowcast/NAME in XDG_CACHE_HOME or ~/.cache; empty if the user has neither.
std::string cache_folder(const char* name);

// Creates a folder, and those above it, for this user alone.
void make_folder(const std::string& path);

// Opens a folder with O_CLOEXEC. Returns -1 with *why if that fails, or if other users can put files there.
int open_cache_folder(const std::string& path, std::string* why);

// Writes another file, for this user alone, and renames it, so that readers see the whole file or none. Returns whether
// that succeeded.
bool replace_file(int folder, const std::string& name, std::span<const iovec> content);

}  // namespace narrowcast::files
