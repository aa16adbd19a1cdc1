#include "bootstrap/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "bootstrap/process.h"
#include "environment/host_name.h"
#include "status/fnv1a.h"

namespace narrowcast::bootstrap {
namespace {

using environment::given_host_name;

// Empty if it is not set.
std::string value_of(const char* variable) {
  const char* const value = secure_getenv(variable);
  return value == nullptr ? "" : value;
}

long number_of(const char* variable) { return std::strtol(value_of(variable).c_str(), nullptr, 10); }

std::string machine_name() {
  char name[HOST_NAME_MAX + 1] = "?";
  static_cast<void>(gethostname(name, sizeof name - 1));
  return name;
}

}  // namespace

std::string why_several_hosts() {
  for (const char* const variable :
       {"NARROWCAST_HOSTID", "NCCL_HOSTID", "NARROWCAST_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})
    if (!value_of(variable).empty()) return std::string(variable) + " is set";
  const std::pair<const char*, const char*> counts[] = {{"LOCAL_WORLD_SIZE", "WORLD_SIZE"},
                                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"},
                                                        {"MPI_LOCALNRANKS", "PMI_SIZE"}};
  for (const auto& [here, everywhere] : counts)
    if (!value_of(here).empty() && number_of(here) < number_of(everywhere))
      return std::string(here) + " is less than " + everywhere;
  return number_of("SLURM_STEP_NUM_NODES") > 1 ? "SLURM_STEP_NUM_NODES is more than 1" : "";
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

uint64_t own_host() {
  if (const std::string name = given_host_name(); !name.empty()) return fnv1a(name);
  struct stat shared = {};
  static_cast<void>(stat("/dev/shm", &shared));
  return fnv1a(boot_id() + '\n' + machine_name() + '\n' + std::to_string(current_process().pid_namespace) + '\n' +
               std::to_string(shared.st_dev));
}

uint64_t own_machine() {
  std::string name = given_host_name();
  if (name.empty()) name = boot_id();
  return fnv1a(name.empty() ? machine_name() : name);
}

std::string host_name() {
  const std::string name = given_host_name();
  return name.empty() ? machine_name() : name;
}

}  // namespace narrowcast::bootstrap
