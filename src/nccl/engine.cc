#include "nccl/engine.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "nccl/functions.h"
#include "nccl/log.h"

namespace narrowcast::nccl {
namespace {

constexpr const char* by_name = "libnarrowcast.so.0";

// NARROWCAST_LIBRARY, else beside the drop-in, else by name.
void* open_library() {
  if (const char* const named = std::getenv("NARROWCAST_LIBRARY"); named != nullptr && *named != '\0')
    return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&engine), &self) != 0) {
    const std::string own = self.dli_fname;
    const std::string beside = own.substr(0, own.rfind('/') + 1) + "libnarrowcast.so";
    if (void* const library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return dlopen(by_name, RTLD_NOW | RTLD_LOCAL);
}

const Engine* load() {
  void* const library = open_library();
  if (library == nullptr) {
    log(Level::warn, "libnarrowcast.so cannot be loaded, and all calls go to NCCL: %s", dlerror());
    return nullptr;
  }
  auto* const found = new Engine;  // never freed: calls may come until the process ends
  FunctionFinder functions(library);
#define FIND(name) functions.find(&found->ncast_##name, "ncast_" #name);
  ENGINE_FUNCTIONS(FIND)
#undef FIND
  if (functions.missing() != nullptr) {
    log(Level::warn, "libnarrowcast.so has no %s, and all calls go to NCCL: it is of another release",
        functions.missing());
    delete found;
    return nullptr;
  }
  const char* const backend = std::getenv("NARROWCAST_TEST_BACKEND");
  const bool host = backend != nullptr && std::strcmp(backend, "host") == 0;
  found->backend = host ? NCAST_BACKEND_HOST : NCAST_BACKEND_CUDA;
  found->most_ranks = host ? 64 : 8;
  return found;
}

}  // namespace

const Engine* engine() {
  static const Engine* const the = load();
  return the;
}

}  // namespace narrowcast::nccl
