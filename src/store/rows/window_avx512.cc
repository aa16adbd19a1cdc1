#if defined(__x86_64__)
#include "store/rows/window_avx512.h"

namespace narrowcast::store::window {

// Rows are decoded, and those of other types encoded, as with AVX2.
template <>
ValuesCoder values_coder<InstructionSet::avx512>(ncast_dtype dtype, bool trimmed) {
  ValuesCoder coder = values_coder<InstructionSet::avx2>(dtype, trimmed);
  if (const auto encode = encoder_of(dtype, trimmed)) coder.encode = encode;
  return coder;
}

}  // namespace narrowcast::store::window
#endif
