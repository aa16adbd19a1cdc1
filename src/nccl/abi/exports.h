// All functions that NCCL exports.
#pragma once

#include <cstddef>

namespace narrowcast::nccl {

enum class Function : int {
#define NCCL_FUNCTION(name, returns) name,
#define NCCL_INTERNAL(name, returns) name,
#include "nccl/abi/exports.inc"
#undef NCCL_FUNCTION
#undef NCCL_INTERNAL
};

// What a stub for a missing function returns.
enum class Returns { result, text, zeros };

struct Export {
  const char* name;
  Returns returns;
};

inline constexpr Export exports[] = {
#define NCCL_FUNCTION(name, returns) {"nccl" #name, Returns::returns},
#define NCCL_INTERNAL(name, returns) {"nccl" #name, Returns::returns},
#include "nccl/abi/exports.inc"
#undef NCCL_FUNCTION
#undef NCCL_INTERNAL
};
inline constexpr size_t export_count = sizeof exports / sizeof exports[0];

}  // namespace narrowcast::nccl
