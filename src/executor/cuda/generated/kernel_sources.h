// The sources that generated kernels include. cmake/kernel_sources.cmake embeds them in the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace narrowcast::executor::cuda::generated {

struct KernelSource {
  const char* path;  // from the root of the repository
  const char* text;
};
extern const KernelSource kernel_sources[];
extern const size_t kernel_source_count;
uint64_t kernel_sources_hash();  // of all of them

// Replaces the includes of a generated source by the text of the files, and puts nvrtc_prelude.cuh in place of those of
// the standard library and CUDA. The result needs no other files, and its constants are no variables: see
// kernel_constants.h.
//   replaced: paths of files that are left out, because the tests have others.
std::string with_included_sources(std::string_view source, std::span<const std::string_view> replaced = {});

}  // namespace narrowcast::executor::cuda::generated
