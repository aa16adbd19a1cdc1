#include "nccl/libraries/real_nccl.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include "nccl/abi/nccl_types.h"
#include "nccl/libraries/nccl_search.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// A symbol that only the drop-in exports; distinguishes a copy of it from NCCL.
constexpr const char* drop_in_symbol = "narrowcast_nccl_resolve";
constexpr int oldest_supported = 21000, newest_major = 2;

thread_local bool is_loading = false;

// Stubs for functions that the loaded NCCL does not have.
struct Zeros {
  long low, high;
};
int return_invalid_usage() { return invalid_usage; }
int return_system_error() { return system_error; }
const char* return_text() { return "narrowcast: the real NCCL was not found or does not have this function"; }
Zeros return_zeros() { return {0, 0}; }

void* stub(Returns returns, bool loaded) {
  switch (returns) {
    case Returns::result: return reinterpret_cast<void*>(loaded ? &return_invalid_usage : &return_system_error);
    case Returns::text: return reinterpret_cast<void*>(&return_text);
    case Returns::zeros: break;
  }
  return reinterpret_cast<void*>(&return_zeros);
}

// RTLD_DEEPBIND makes NCCL bind to its own functions first. It must not be used when malloc is replaced: NCCL would
// allocate from libc and free with the replacement. NCCL's calls to itself then pass through the drop-in (see
// InsideNccl).
int binding_flags() {
  Dl_info of_malloc, of_libc;
  const bool replaced = dladdr(dlsym(RTLD_DEFAULT, "malloc"), &of_malloc) == 0 ||
                        dladdr(reinterpret_cast<void*>(&gnu_get_libc_version), &of_libc) == 0 ||
                        of_malloc.dli_fbase != of_libc.dli_fbase;
  return replaced ? 0 : RTLD_DEEPBIND;
}

bool load(const std::string& path, RealNccl* nccl) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | binding_flags());
  if (library == nullptr) {
    log(Level::warn, "the real NCCL cannot be loaded: %s", dlerror());
    return false;
  }
  if (dlsym(library, drop_in_symbol) != nullptr) {
    log(Level::info, "%s is a copy of the drop-in, not NCCL", path.c_str());
    return false;
  }
  using GetVersion = int(int*);
  auto* const get_version = reinterpret_cast<GetVersion*>(dlsym(library, "ncclGetVersion"));
  if (get_version == nullptr || get_version(&nccl->version) != success) {
    log(Level::warn, "%s is not NCCL: its ncclGetVersion is missing or fails", path.c_str());
    return false;
  }
  for (size_t i = 0; i < export_count; ++i) nccl->functions[i] = dlsym(library, exports[i].name);
  nccl->path = path;
  return true;
}

const RealNccl& find_and_load() {
  is_loading = true;
  auto* const nccl = new RealNccl;  // never freed: calls may come until the process ends
  for (const std::string& path : nccl_candidates())
    if (load(path, nccl)) break;
  const bool loaded = !nccl->path.empty();
  for (size_t i = 0; i < export_count; ++i) {
    nccl->has[i] = nccl->functions[i] != nullptr;
    if (!nccl->has[i]) nccl->functions[i] = stub(exports[i].returns, loaded);
  }
  is_loading = false;
  if (!loaded) {
    log(Level::warn, "the real NCCL was not found, so every call fails: set NARROWCAST_NCCL_LIBRARY to its path");
    return *nccl;
  }
  const std::string version = version_text(nccl->version);
  log(Level::version, "Narrowcast %s loaded NCCL %s from %s", NARROWCAST_VERSION, version.c_str(), nccl->path.c_str());
  nccl->is_supported = nccl->version >= oldest_supported && nccl->version / 10000 == newest_major;
  if (!nccl->is_supported)
    log(Level::warn, "Narrowcast does not support NCCL %s: every call is forwarded to it", version.c_str());
  return *nccl;
}

}  // namespace

const RealNccl& real_nccl() {
  static const RealNccl& the = find_and_load();
  return the;
}

void* stub_while_loading(Function function) {
  return is_loading ? stub(exports[static_cast<size_t>(function)].returns, false) : nullptr;
}

std::string version_text(int version) {
  // Since 2.9 the minor version has two digits.
  const int major = version / (version >= 10000 ? 10000 : 1000), rest = version % (version >= 10000 ? 10000 : 1000);
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
}

}  // namespace narrowcast::nccl
