// Where the real NCCL may be.
#pragma once

#include <string>
#include <vector>

namespace narrowcast::nccl {

// Absolute paths of files, the best first: the one that a setting names, alone; else one that this process has
// loaded, the pip wheels beside what it has loaded or runs on, then LD_LIBRARY_PATH and the folders of the system. Never
// the drop-in itself.
std::vector<std::string> nccl_candidates();

}  // namespace narrowcast::nccl
