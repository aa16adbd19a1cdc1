// Finds the real NCCL.
#pragma once

#include <string>
#include <vector>

namespace narrowcast::nccl {

// Absolute paths of existing files, best first. If a setting names one, only that. Otherwise: libraries that this
// process has loaded; pip wheels beside loaded packages, or of the running Python; LD_LIBRARY_PATH; system folders.
// Never the drop-in.
std::vector<std::string> nccl_candidates();

}  // namespace narrowcast::nccl
