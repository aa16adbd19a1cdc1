#include "bootstrap/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>

#include "bootstrap/process.h"
#include "status/fnv1a.h"

namespace narrowcast::bootstrap {
namespace {

// Empty if no variable names the host.
std::string given_name() {
  for (const char* const variable : {"NARROWCAST_HOSTID", "NCCL_HOSTID"})
    if (const char* const name = secure_getenv(variable); name != nullptr && *name != 0) return name;
  return {};
}

std::string machine_name() {
  char name[HOST_NAME_MAX + 1] = "?";
  static_cast<void>(gethostname(name, sizeof name - 1));
  return name;
}

}  // namespace

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

uint64_t own_host() {
  if (const std::string name = given_name(); !name.empty()) return fnv1a(name);
  struct stat shared = {};
  static_cast<void>(stat("/dev/shm", &shared));
  return fnv1a(boot_id() + '\n' + machine_name() + '\n' + std::to_string(current_process().pid_namespace) + '\n' +
               std::to_string(shared.st_dev));
}

std::string host_name() {
  const std::string name = given_name();
  return name.empty() ? machine_name() : name;
}

}  // namespace narrowcast::bootstrap
