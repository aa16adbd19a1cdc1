#include "nccl/libraries/nccl_search.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "nccl/report/log.h"
#include "nccl/settings/settings.h"

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

// The site-packages folder that contains a path, with a trailing slash; empty: none.
std::string packages_of(std::string_view path) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"})
    if (const size_t at = path.rfind(folder); at != std::string_view::npos)
      return std::string(path.substr(0, at + folder.size()));
  return "";
}

void add_loaded(Paths* paths) {
  const auto visit = [](dl_phdr_info* object, size_t, void* context) {
    const std::string path = object->dlpi_name;
    if (path.ends_with(std::string("/") + library_name)) add(path, static_cast<Paths*>(context));
    return 0;
  };
  dl_iterate_phdr(visit, paths);
}

void add_wheels_of_loaded_objects(Paths* paths) {
  const auto visit = [](dl_phdr_info* object, size_t, void* context) {
    const std::string packages = packages_of(object->dlpi_name);
    if (!packages.empty()) add(packages + wheel_folder + library_name, static_cast<Paths*>(context));
    return 0;
  };
  dl_iterate_phdr(visit, paths);
}

// The wheels of the virtual environment and of the running Python.
void add_wheels_of_python(Paths* paths) {
  Paths prefixes;
  if (const char* const environment = std::getenv("VIRTUAL_ENV")) prefixes.emplace_back(environment);
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  if (length > 0) {
    const std::string_view path(program, static_cast<size_t>(length));
    if (const size_t folder = path.rfind("/bin/"); folder != std::string_view::npos)
      prefixes.emplace_back(path.substr(0, folder));
  }
  for (const std::string& prefix : prefixes) {
    glob_t found;
    if (glob((prefix + "/lib/python3*/*-packages/" + wheel_folder + library_name).c_str(), 0, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; ++i) add(found.gl_pathv[i], paths);
    globfree(&found);
  }
}

void add_system(Paths* paths) {
  std::string_view folders = std::getenv("LD_LIBRARY_PATH") != nullptr ? std::getenv("LD_LIBRARY_PATH") : "";
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
  add_wheels_of_loaded_objects(&paths);
  add_wheels_of_python(&paths);
  add_system(&paths);
  return paths;
}

}  // namespace narrowcast::nccl
