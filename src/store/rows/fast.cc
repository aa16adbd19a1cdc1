#include "store/rows/fast.h"

namespace narrowcast::store {

std::span<const InstructionSet> instruction_sets() {
  static constexpr InstructionSet sets[] = {InstructionSet::baseline, InstructionSet::avx2};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) return sets;
#endif
  return std::span(sets).first(1);
}

RowCoder fast_coder(const Model& model, InstructionSet set) {
  switch (model.coder) {
    case Coder::PLAIN: return fast_plain();
    case Coder::WINDOW: return fast_window(set);
    case Coder::INVARIANT: return fast_invariant(set);
    case Coder::RAW: break;
  }
  return reference;  // stores every row raw
}

}  // namespace narrowcast::store
