#include "channel/network/ucx_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <vector>

#include "packages/python_packages.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// The first version whose operations accept registered memory.
constexpr unsigned api_major = 1, first_minor = 13;

}  // namespace

// For the library, and its result.
struct UcxLibrary::Search {
  std::unique_ptr<UcxLibrary> found;
  std::string why;  // there is none

  Search() {
    for (const std::string& path : paths()) {
      void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        why += std::string("; ") + dlerror();
        continue;
      }
      auto candidate = std::make_unique<UcxLibrary>();
      std::string reason;
      if (candidate->initialize(library, &reason))
        found = std::move(candidate);
      else
        why.append("; ").append(path).append(": ").append(reason);
      return;  // two versions in one process would mix: another libucp would use the parts of the first
    }
  }

 private:
  static std::vector<std::string> paths() {
    if (const char* const path = secure_getenv(path_variable); path != nullptr && *path != '\0') return {path};
    std::vector<std::string> paths = {"libucp.so.0"};
    for (const std::string& folder : packages::python_package_folders())
      paths.push_back(folder + "libucx/lib/libucp.so.0");
    return paths;
  }
};

ncast_status UcxLibrary::load(const UcxLibrary** library) {
  static const Search& search = *new Search;  // threads may use it until the process ends
  *library = search.found.get();
  if (*library != nullptr) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED, "UCX cannot be used%s; %s can name its libucp.so.0", search.why.c_str(),
              path_variable);
}

bool UcxLibrary::host_has_rdma() {
  glob_t devices;
  const bool exist = glob("/sys/class/infiniband/*", 0, nullptr, &devices) == 0;
  globfree(&devices);
  return exist;
}

template <typename Function>
bool UcxLibrary::find(void* library, const char* symbol, Function*& function, std::string* why) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (function == nullptr) *why = std::string("it has no function ") + symbol;
  return function != nullptr;
}

bool UcxLibrary::initialize(void* library, std::string* why) {
  const auto get = [&](const char* symbol, auto& function) { return find(library, symbol, function, why); };
  // The last one is in libucs.so.0, on which libucp.so.0 depends.
  if (!(get("ucp_get_version", get_version_) && get("ucp_init_version", init_version_) &&
        get("ucp_config_read", config_read_) && get("ucp_config_release", config_release_) &&
        get("ucp_context_print_info", context_print_info_) && get("ucp_cleanup", cleanup) &&
        get("ucp_worker_create", worker_create) && get("ucp_worker_destroy", worker_destroy) &&
        get("ucp_worker_query", worker_query) && get("ucp_worker_release_address", worker_release_address) &&
        get("ucp_worker_progress", worker_progress) &&
        get("ucp_worker_set_am_recv_handler", worker_set_am_recv_handler) && get("ucp_ep_create", ep_create) &&
        get("ucp_ep_flush_nbx", ep_flush) && get("ucp_ep_close_nbx", ep_close) && get("ucp_mem_map", mem_map) &&
        get("ucp_mem_unmap", mem_unmap) && get("ucp_am_send_nbx", am_send) && get("ucp_am_recv_data_nbx", am_receive) &&
        get("ucp_am_data_release", am_data_release) && get("ucp_request_check_status", request_check_status) &&
        get("ucp_request_free", request_free) && get("ucs_status_string", status_string_)))
    return false;
  unsigned version[3] = {};
  get_version_(&version[0], &version[1], &version[2]);
  name_ = "UCX " + std::to_string(version[0]) + '.' + std::to_string(version[1]) + '.' + std::to_string(version[2]);
  if (version[0] != api_major || version[1] < first_minor) {
    *why = "it is " + name_ + ", not version 1.13 or a later 1.x";
    return false;
  }
  ucx::Context context = nullptr;
  if (make_context(&context) != NCAST_OK) {
    *why = ncast_last_error();
    return false;
  }
  char* text = nullptr;
  size_t bytes = 0;
  if (FILE* const file = open_memstream(&text, &bytes)) {
    context_print_info_(context, file);
    std::fclose(file);
    transports_ = network_transports_in({text, bytes});
    std::free(text);
  }
  cleanup(context);
  return true;
}

ncast_status UcxLibrary::make_context(ucx::Context* context) const {
  ucx::Config config = nullptr;
  if (const ucx::Status status = config_read_(nullptr, nullptr, &config))
    return fail(NCAST_SYSTEM_ERROR, "%s", failure("ucp_config_read", status).c_str());
  const ucx::Parameters parameters = {ucx::Parameters::with_features, ucx::Parameters::active_messages};
  const ucx::Status status = init_version_(api_major, first_minor, &parameters, config, context);
  config_release_(config);
  return status == ucx::ok ? NCAST_OK : fail(NCAST_SYSTEM_ERROR, "%s", failure("ucp_init", status).c_str());
}

std::string UcxLibrary::failure(const char* function, ucx::Status status) const {
  return std::string(function) + " of " + name_ + " failed: " + status_string_(status);
}

// Lines such as "#  resource 3  :  md 1  dev 2  flags -- rc_mlx5/mlx5_0:1".
std::string network_transports_in(std::string_view info) {
  std::string found;
  std::istringstream lines{std::string(info)};
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.rfind(' ') + 1, end = line.find('/', begin);
    if (line.find(" resource ") == line.npos || end == line.npos) continue;
    const std::string name = line.substr(begin, end - begin);
    const bool is_of_network =
        name == "tcp" || name == "srd" || name.starts_with("rc_") || name.starts_with("dc_") || name.starts_with("ud_");
    if (is_of_network && (", " + found + ",").find(", " + name + ",") == std::string::npos)
      found += (found.empty() ? "" : ", ") + name;
  }
  return found;
}

}  // namespace narrowcast::channel
