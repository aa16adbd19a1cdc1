// For functions that use the parts of AVX-512 that InstructionSet::avx512 stands for. Tests define STORE_AVX512 and
// emulate the instructions.
#pragma once

#if !defined(STORE_AVX512)
#include <immintrin.h>
#define STORE_AVX512                                                                                              \
  __attribute__((                                                                                                 \
      target("avx2,bmi,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2,avx512bitalg," \
             "avx512vpopcntdq,gfni")))
#if defined(__GNUC__) && !defined(__clang__)
// False positives of gcc 12 in its header (GCC bug 105593), which it reports where the functions are used.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

// For parts of them that take or return vectors.
#define STORE_AVX512_INLINE inline __attribute__((always_inline)) STORE_AVX512
