// Where Python packages are, as NVIDIA's libraries come in packages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace narrowcast::packages {

// The folder of packages that contains a file, with a slash at the end; empty if none does.
std::string python_package_folder_of(std::string_view path);

// Folders of packages, such as /usr/lib/python3/dist-packages/, with a slash at the end, the best first, each once:
// those that contain libraries which this process has loaded, then those of the virtual environment (VIRTUAL_ENV) and,
// if this program is Python, its own. Nothing is loaded.
std::vector<std::string> python_package_folders();

}  // namespace narrowcast::packages
