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
    const std::string_view path = object->dlpi_name;
    for (const std::string_view folder : {"/site-packages/", "/dist-packages/"})
      if (const size_t at = path.rfind(folder); at != std::string_view::npos) {
        add(std::string(path.substr(0, at + folder.size())), static_cast<Folders*>(context));
        break;
      }
    return 0;
  };
  dl_iterate_phdr(visit, folders);
}

void add_of_python(Folders* folders) {
  std::vector<std::string> prefixes;
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
    if (glob((prefix + "/lib/python3*/*-packages/").c_str(), 0, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; ++i) add(found.gl_pathv[i], folders);
    globfree(&found);
  }
}

}  // namespace

Folders python_package_folders() {
  Folders folders;
  add_of_loaded_objects(&folders);
  add_of_python(&folders);
  return folders;
}

}  // namespace narrowcast::packages
