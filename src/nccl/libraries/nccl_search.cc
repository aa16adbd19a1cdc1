#include "nccl/libraries/nccl_search.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "nccl/report/log.h"
#include "nccl/settings/settings.h"
#include "packages/python_packages.h"

// Debian's library folders of this architecture.
#if defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif

namespace narrowcast::nccl {
namespace {

constexpr const char* library_name = "libnccl.so.2";
constexpr const char* wheel_folder = "nvidia/nccl/lib/";

using Paths = std::vector<std::string>;

bool is_file(const std::string& path, struct stat* found) {
  return stat(path.c_str(), found) == 0 && S_ISREG(found->st_mode);
}

bool is_drop_in(const struct stat& file) {
  Dl_info self;
  struct stat own;
  return dladdr(reinterpret_cast<void*>(&nccl_candidates), &self) != 0 && stat(self.dli_fname, &own) == 0 &&
         own.st_dev == file.st_dev && own.st_ino == file.st_ino;
}

void add(const std::string& path, Paths* paths) {
  struct stat file;
  if (is_file(path, &file) && !is_drop_in(file) && std::ranges::find(*paths, path) == paths->end())
    paths->push_back(path);
}

void add_loaded(Paths* paths) {
  const auto visit = [](dl_phdr_info* object, size_t, void* context) {
    const std::string path = object->dlpi_name;
    if (path.ends_with(std::string("/") + library_name)) add(path, static_cast<Paths*>(context));
    return 0;
  };
  dl_iterate_phdr(visit, paths);
}

void add_system(Paths* paths) {
  std::string_view folders = secure_getenv("LD_LIBRARY_PATH") != nullptr ? secure_getenv("LD_LIBRARY_PATH") : "";
  while (!folders.empty()) {
    const size_t end = std::min(folders.find_first_of(":;"), folders.size());
    const std::string folder(folders.substr(0, end));
    if (folder.starts_with('/')) add(folder + "/" + library_name, paths);
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  for (const char* const folder : {"/usr/lib/" MULTIARCH "/", "/lib/" MULTIARCH "/", "/usr/lib64/", "/usr/lib/",
                                   "/usr/local/lib/", "/usr/local/cuda/lib64/"})
    add(std::string(folder) + library_name, paths);
}

}  // namespace

Paths nccl_candidates() {
  if (const std::string& named = settings().nccl_library; !named.empty()) {
    struct stat file;
    const char* const problem = !named.starts_with('/')  ? "not an absolute path"
                                : !is_file(named, &file) ? "not a file"
                                : is_drop_in(file)       ? "the drop-in itself"
                                                         : nullptr;
    if (problem == nullptr) return {named};
    log(Level::warn, "%s: nccl_library is %s, which is %s", settings().nccl_library_from.c_str(), named.c_str(),
        problem);
    return {};
  }
  Paths paths;
  add_loaded(&paths);
  for (const std::string& folder : packages::python_package_folders())
    add(folder + wheel_folder + library_name, &paths);
  add_system(&paths);
  return paths;
}

}  // namespace narrowcast::nccl
