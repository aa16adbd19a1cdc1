#include "files/owned_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace narrowcast::files {

std::string why_untrusted(const struct stat& about, Trust trust, mode_t type) {
  if ((about.st_mode & S_IFMT) != type) return type == S_IFDIR ? "it is not a folder" : "it is not a regular file";
  const bool is_owned = about.st_uid == geteuid() || (trust == Trust::readable && about.st_uid == 0);
  if (!is_owned) return "it belongs to another user (uid " + std::to_string(about.st_uid) + ")";
  const mode_t forbidden = trust == Trust::own_only ? S_IRWXG | S_IRWXO : S_IWGRP | S_IWOTH;
  if ((about.st_mode & forbidden) == 0) return "";
  return trust == Trust::own_only ? "other users have access to it" : "other users can write to it";
}

int open_owned(int folder, const std::string& path, int flags, Trust trust, std::string* why) {
  why->clear();
  struct stat about;
  const int file = openat(folder, path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
  const int error = file < 0 ? errno : EPERM;
  if (file >= 0) {
    *why = fstat(file, &about) != 0 ? std::strerror(errno) : why_untrusted(about, trust);
    if (why->empty()) return file;
    close(file);
  } else if (fstatat(folder, path.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0) {
    *why = why_untrusted(about, trust);  // says more than "Permission denied"
  }
  if (why->empty()) *why = std::strerror(error);
  errno = error;
  return -1;
}

}  // namespace narrowcast::files
