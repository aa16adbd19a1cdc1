// Constants in the sources of kernels.
#pragma once

#include <string>
#include <string_view>

namespace narrowcast::executor::cuda::generated {

// Rewrites a source so that its constants are no variables: integers become enumerators, others functions. NVRTC puts
// every constant of a namespace or class into the GPU's memory, although kernels do not read it there, and the driver
// takes several times as long to load a kernel that has such memory.
// Rewritten are definitions on one line, of members only integers and enumerations of the API (ncast_...). The latter
// must be qualified where they are used.
std::string without_variables(std::string_view source);

}  // namespace narrowcast::executor::cuda::generated
