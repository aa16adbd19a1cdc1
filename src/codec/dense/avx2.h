// The block coder of `dense` for x86 CPUs with AVX2 and BMI2.
#pragma once

#include "codec/dense/block.h"

namespace narrowcast::codec::dense {

#if defined(__x86_64__)
extern const BlockCoder avx2;
#endif

}  // namespace narrowcast::codec::dense
