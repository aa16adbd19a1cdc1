#if defined(__x86_64__)
#define STORE_SET InstructionSet::avx2
#define STORE_TARGET __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))
#include "store/rows/window_path.inc"
#endif
