// Where Python packages are, as NVIDIA's libraries come in packages.
#pragma once

#include <string>
#include <vector>

namespace narrowcast::packages {

// Folders of packages, such as /usr/lib/python3/dist-packages/, with a slash at the end, the best first, each once:
// those that contain libraries which this process has loaded, then those of the virtual environment (VIRTUAL_ENV) and
// of the running Python. Nothing is loaded.
std::vector<std::string> python_package_folders();

}  // namespace narrowcast::packages
