#include "nccl/real_nccl.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <atomic>

#include "nccl/find_nccl.h"
#include "nccl/log.h"
#include "nccl/nccl_abi.h"
#include "nccl/settings.h"

extern "C" {
// One for each export, in their order; trampolines.S jumps through them.
extern std::atomic<void*> narrowcast_nccl_slots[];
__attribute__((visibility("default"))) void* narrowcast_nccl_resolve(std::atomic<void*>* slot);
}

namespace narrowcast::nccl {
namespace {

// Tells a copy of the drop-in from NCCL.
constexpr const char* mark = "narrowcast_nccl_resolve";
constexpr int oldest_known = 21000, newest_major = 2;

thread_local bool loading = false;

// What stands for a function that there is not.
struct Zeros {
  long low, high;
};
int return_invalid_usage() { return invalid_usage; }
int return_system_error() { return system_error; }
const char* return_text() { return "narrowcast: the real NCCL was not found or does not have this function"; }
Zeros return_zeros() { return {0, 0}; }

void* stand_in(Returns returns, bool loaded) {
  switch (returns) {
    case Returns::result: return reinterpret_cast<void*>(loaded ? &return_invalid_usage : &return_system_error);
    case Returns::text: return reinterpret_cast<void*>(&return_text);
    case Returns::zeros: break;
  }
  return reinterpret_cast<void*>(&return_zeros);
}

// NCCL binds to its own functions first, unless somebody replaces malloc: it would then free with another one than what
// it got from libc. Calls of NCCL to itself then come through the drop-in, which lets them pass.
int how_to_bind() {
  Dl_info of_malloc, of_libc;
  const bool replaced = dladdr(dlsym(RTLD_DEFAULT, "malloc"), &of_malloc) == 0 ||
                        dladdr(reinterpret_cast<void*>(&gnu_get_libc_version), &of_libc) == 0 ||
                        of_malloc.dli_fbase != of_libc.dli_fbase;
  return replaced ? 0 : RTLD_DEEPBIND;
}

bool load(const std::string& path, RealNccl* nccl) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | how_to_bind());
  if (library == nullptr) {
    log(Level::warn, "the real NCCL cannot be loaded: %s", dlerror());
    return false;
  }
  if (dlsym(library, mark) != nullptr) {
    log(Level::info, "%s is a copy of the drop-in, not NCCL", path.c_str());
    return false;
  }
  using GetVersion = int(int*);
  auto* const get_version = reinterpret_cast<GetVersion*>(dlsym(library, "ncclGetVersion"));
  if (get_version == nullptr || get_version(&nccl->version) != success) {
    log(Level::warn, "%s is no NCCL: its ncclGetVersion is missing or fails", path.c_str());
    return false;
  }
  for (size_t i = 0; i < export_count; ++i) nccl->functions[i] = dlsym(library, exports[i].name);
  nccl->path = path;
  return true;
}

const RealNccl* find_and_load() {
  loading = true;
  auto* const nccl = new RealNccl;  // never freed: calls may come until the process ends
  const std::vector<std::string> candidates = nccl_candidates();
  for (const std::string& path : candidates)
    if (load(path, nccl)) break;
  const bool loaded = !nccl->path.empty();
  for (size_t i = 0; i < export_count; ++i)
    if (nccl->functions[i] == nullptr) nccl->functions[i] = stand_in(exports[i].returns, loaded);
  loading = false;
  if (!loaded) {
    log(Level::warn, "the real NCCL was not found, and every call fails: set NARROWCAST_NCCL_LIBRARY to its path");
    return nccl;
  }
  log(Level::version, "Narrowcast %s stands before NCCL %s at %s", NARROWCAST_VERSION,
      version_text(nccl->version).c_str(), nccl->path.c_str());
  nccl->known = nccl->version >= oldest_known && nccl->version / 10000 == newest_major;
  if (!nccl->known)
    log(Level::warn, "NCCL %s is not known to Narrowcast, and all calls go to it", version_text(nccl->version).c_str());
  return nccl;
}

bool passes_on(const RealNccl& nccl) { return !nccl.known || settings().off_everything; }

bool is_missing(const RealNccl& nccl, size_t index) {
  return nccl.functions[index] == stand_in(exports[index].returns, !nccl.path.empty());
}

}  // namespace

const RealNccl& real_nccl() {
  static const RealNccl& the = *find_and_load();
  return the;
}

std::string version_text(int version) {
  // Since 2.9 the minor version has two digits.
  const int major = version / (version >= 10000 ? 10000 : 1000), rest = version % (version >= 10000 ? 10000 : 1000);
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
}

}  // namespace narrowcast::nccl

using namespace narrowcast::nccl;

void* narrowcast_nccl_resolve(std::atomic<void*>* slot) {
  const auto index = static_cast<size_t>(slot - narrowcast_nccl_slots);
  // A constructor of the real NCCL calls it before it is loaded.
  if (loading) return stand_in(exports[index].returns, false);
  const RealNccl& nccl = real_nccl();
  const bool missing = is_missing(nccl, index);
  void* const own = missing || passes_on(nccl) ? nullptr : handler(static_cast<Function>(index));
  void* const target = own != nullptr ? own : nccl.functions[index];
  if (missing && !nccl.path.empty())
    log(Level::warn, "NCCL %s has no %s: calls of it fail", version_text(nccl.version).c_str(), exports[index].name);
  slot->store(target, std::memory_order_relaxed);
  return target;
}
