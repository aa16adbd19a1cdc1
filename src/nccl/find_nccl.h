// Where the real NCCL may be.
#pragma once

#include <string>
#include <vector>

namespace narrowcast::nccl {

// Absolute paths of files, the best first: NARROWCAST_NCCL_LIBRARY alone where it is set; else the pip wheels beside what
// this process has loaded or runs on, then LD_LIBRARY_PATH and the folders of the system. Never the drop-in itself.
std::vector<std::string> nccl_candidates();

}  // namespace narrowcast::nccl
