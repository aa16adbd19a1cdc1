#if defined(__x86_64__)
#define STORE_SET InstructionSet::avx2
#define STORE_TARGET __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))
#define STORE_HAS_AVX2
#include "store/rows/window_path.inc"
#endif
