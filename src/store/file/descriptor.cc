#include "store/file/descriptor.h"

#include <unistd.h>

#include <climits>
#include <string_view>

namespace narrowcast::store::file {
namespace {

constexpr std::string_view memory = "/memfd:", removed = " (deleted)";
// Of store.build() in Python: no user has chosen it.
constexpr std::string_view unnamed = "narrowcast-store";

std::string link_of(int descriptor) {
  char target[PATH_MAX];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), target, sizeof target);
  return {target, length > 0 ? static_cast<size_t>(length) : 0};
}

}  // namespace

std::string path_of(int descriptor) {
  std::string link = link_of(descriptor);
  return link.starts_with(memory) ? std::string() : link;
}

std::string name_of(int descriptor, const std::string& path) {
  const std::string link = link_of(descriptor);
  std::string_view target = link;
  if (target.starts_with(memory)) {
    target.remove_prefix(memory.size());
    if (target.ends_with(removed)) target.remove_suffix(removed.size());
    return target == unnamed ? "a table in memory" : "the table '" + std::string(target) + "' in memory";
  }
  const bool is_descriptor = path.starts_with("/proc/") || path.starts_with("/dev/fd/");
  return is_descriptor && !link.empty() ? link : path;
}

}  // namespace narrowcast::store::file
