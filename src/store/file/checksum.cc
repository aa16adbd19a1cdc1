#include "store/file/checksum.h"

#if defined(__x86_64__)
#include <immintrin.h>
// xxhash.h then also has the parts of XXH3 for AVX2, which xxh_x86dispatch.c of the library uses in this way.
#define XXH_DISPATCH_AVX2 1
#define XXH_TARGET_AVX2 __attribute__((target("avx2")))
#define XXH_ACC_ALIGN 64
#endif
#define XXH_INLINE_ALL
#include "xxhash/xxhash.h"

namespace narrowcast::store::file {
namespace {

#if defined(__x86_64__)
// count: more than XXH3_MIDSIZE_MAX.
__attribute__((target("avx2"))) uint64_t avx2_checksum(const void* bytes, size_t count) {
  return XXH3_hashLong_64b_internal(bytes, count, XXH3_kSecret, sizeof XXH3_kSecret, XXH3_accumulate_512_avx2,
                                    XXH3_scrambleAcc_avx2);
}
#endif

}  // namespace

uint64_t checksum(const void* bytes, size_t count) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2 && count > XXH3_MIDSIZE_MAX) return avx2_checksum(bytes, count);
#endif
  return XXH3_64bits(bytes, count);
}

}  // namespace narrowcast::store::file
