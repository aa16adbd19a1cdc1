#include "store/rows/fast.h"

namespace narrowcast::store {
namespace {

#if defined(__x86_64__)
// The parts in avx512.h: all of Intel's CPUs for servers since Ice Lake, and AMD's since Zen 4.
bool has_avx512() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512bitalg") &&
         __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("gfni");
}
#endif

}  // namespace

std::span<const InstructionSet> instruction_sets() {
  static constexpr InstructionSet sets[] = {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512};
  size_t supported = 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
    supported = 2;
    if (has_avx512()) supported = 3;
  }
#endif
  return std::span(sets).first(supported);
}

RowCoder fast_coder(const Model& model, InstructionSet set) {
  switch (model.coder) {
    case Coder::PLAIN: return fast_plain(set);
    case Coder::WINDOW: return fast_window(set);
    case Coder::INVARIANT: return fast_invariant(model, set);
    case Coder::RAW: break;
  }
  return reference;  // stores every row raw
}

}  // namespace narrowcast::store
