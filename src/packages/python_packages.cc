#include "packages/python_packages.h"

#include <glob.h>
#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace narrowcast::packages {
namespace {

using Folders = std::vector<std::string>;

void add(const std::string& folder, Folders* folders) {
  if (std::ranges::find(*folders, folder) == folders->end()) folders->push_back(folder);
}

void add_of_loaded_objects(Folders* folders) {
  const auto visit = [](dl_phdr_info* object, size_t, void* context) {
    const std::string folder = python_package_folder_of(object->dlpi_name);
    if (!folder.empty()) add(folder, static_cast<Folders*>(context));
    return 0;
  };
  dl_iterate_phdr(visit, folders);
}

void add_of_python(Folders* folders) {
  std::vector<std::string> prefixes;
  if (const char* const environment = secure_getenv("VIRTUAL_ENV")) prefixes.emplace_back(environment);
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  if (length > 0) {
    const std::string_view path(program, static_cast<size_t>(length));
    // Only Python looks for packages there: other users may be able to create a folder beside any other program.
    constexpr std::string_view name = "/bin/python";
    if (const size_t folder = path.rfind('/'); folder != path.npos && folder >= 4)
      if (path.substr(folder - 4).starts_with(name)) prefixes.emplace_back(path.substr(0, folder - 4));
  }
  for (const std::string& prefix : prefixes) {
    glob_t found;
    if (glob((prefix + "/lib/python3*/*-packages/").c_str(), 0, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; ++i) add(found.gl_pathv[i], folders);
    globfree(&found);
  }
}

}  // namespace

std::string python_package_folder_of(std::string_view path) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"})
    if (const size_t at = path.rfind(folder); at != path.npos) return std::string(path.substr(0, at + folder.size()));
  return "";
}

Folders python_package_folders() {
  Folders folders;
  add_of_loaded_objects(&folders);
  add_of_python(&folders);
  return folders;
}

}  // namespace narrowcast::packages
