// The NCCL that the drop-in stands before: found, loaded once, at the first call of any function.
#pragma once

#include <string>

#include "nccl/exports.h"

namespace narrowcast::nccl {

struct RealNccl {
  std::string path;  // empty: there is none
  int version = 0;   // as ncclGetVersion gives it
  // The drop-in handles calls itself; otherwise it passes everything on.
  bool known = false;
  // The function, or one that returns an error where this NCCL does not have it.
  void* functions[export_count] = {};
};

const RealNccl& real_nccl();

// 22809 -> "2.28.9".
std::string version_text(int version);

template <typename Signature>
Signature* real(Function function) {
  return reinterpret_cast<Signature*>(real_nccl().functions[static_cast<size_t>(function)]);
}

}  // namespace narrowcast::nccl
