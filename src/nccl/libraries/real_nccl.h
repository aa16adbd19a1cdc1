// The NCCL that the drop-in replaces. It is searched for and loaded once, at the first call of any NCCL function.
#pragma once

#include <string>

#include "nccl/abi/exports.h"

namespace narrowcast::nccl {

struct RealNccl {
  std::string path;  // empty: not found
  int version = 0;   // as returned by ncclGetVersion
  // False for versions outside the supported range: every call is then forwarded.
  bool is_supported = false;
  // Functions that this NCCL lacks are replaced by stubs that return an error.
  void* functions[export_count] = {};
  bool has[export_count] = {};
};

const RealNccl& real_nccl();

// The stub for a function that is called while real_nccl() is still loading NCCL on this thread, for example by a
// constructor of the library; otherwise NULL.
void* stub_while_loading(Function function);

// 22809 -> "2.28.9".
std::string version_text(int version);

template <typename Signature>
Signature* real(Function function) {
  return reinterpret_cast<Signature*>(real_nccl().functions[static_cast<size_t>(function)]);
}

}  // namespace narrowcast::nccl
