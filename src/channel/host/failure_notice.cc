#include "channel/host/failure_notice.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "bootstrap/peer_failure.h"
#include "bootstrap/shared_memory.h"
#include "digest/sha256.h"

namespace narrowcast::channel {
namespace {

constexpr char directory[] = "/dev/shm/";
constexpr char suffix[] = ".failed";
constexpr time_t lifetime_seconds = 600;  // longer than ranks of one program are apart
constexpr size_t longest_text = 600;

}  // namespace

std::string failure_notice_path(const bootstrap::WorldId& id) {
  const std::string_view secret(reinterpret_cast<const char*>(id.data()), sizeof id);
  const std::string name = digest::hex(digest::sha256("narrowcast failure notice", secret), 32);
  return std::string(directory) + bootstrap::segment_prefix + name + suffix;
}

void leave_failure_notice(const bootstrap::WorldId& id, int rank, ncast_status status, const char* message) {
  char text[longest_text];
  std::snprintf(text, sizeof text, "%d %d %s", static_cast<int>(status), rank, message);
  static_cast<void>(symlink(text, failure_notice_path(id).c_str()));  // fails if another rank has failed before
}

ncast_status check_failure_notice(const bootstrap::WorldId& id) {
  char text[longest_text + 1];
  const ssize_t bytes = readlink(failure_notice_path(id).c_str(), text, sizeof text - 1);
  if (bytes < 0) return NCAST_OK;
  text[bytes] = 0;
  // A rank of another user may have written it.
  std::replace_if(text, text + bytes, [](unsigned char byte) { return byte < ' ' || byte == 0x7f; }, '?');
  int status = 0, rank = 0, message = 0;
  const bool valid = std::sscanf(text, "%d %d %n", &status, &rank, &message) == 2 && message > 0 && status > NCAST_OK &&
                     status <= NCAST_INTERNAL;
  return bootstrap::fail_of_rank(valid ? static_cast<ncast_status>(status) : NCAST_INTERNAL, rank, text + message);
}

void sweep_failure_notices() {
  const std::time_t now = std::time(nullptr);
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (!name.starts_with(bootstrap::segment_prefix) || !name.ends_with(suffix)) continue;
    struct stat about;
    const bool is_old = lstat(at->path().c_str(), &about) == 0 && S_ISLNK(about.st_mode) && about.st_uid == geteuid() &&
                        about.st_mtime + lifetime_seconds < now;
    if (is_old) unlink(at->path().c_str());
  }
}

}  // namespace narrowcast::channel
