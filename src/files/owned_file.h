// Files in folders to which other users can write, such as /dev/shm and /tmp. As in OpenSSH, the owner and the mode of
// the opened file decide whether it can be used.
#pragma once

#include <sys/stat.h>

#include <string>

namespace narrowcast::files {

enum class Trust {
  own_only,  // other users can neither read nor write it: mode 0600
  readable,  // owned by this user or root, and writable by its owner alone
};

// Why a regular file, or a folder if `type` is S_IFDIR, cannot be trusted; empty if it can.
std::string why_untrusted(const struct stat& about, Trust trust, mode_t type = S_IFREG);

// Opens a regular file, relative to a folder (or AT_FDCWD), and checks it. Follows no symbolic link in the last part of
// the path, and does not wait for a FIFO or a lease. Files are created with mode 0600. Returns -1 with *why and errno,
// which is EPERM if the file cannot be trusted.
int open_owned(int folder, const std::string& path, int flags, Trust trust, std::string* why);

}  // namespace narrowcast::files
