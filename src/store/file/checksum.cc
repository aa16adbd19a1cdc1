#include "store/file/checksum.h"

#define XXH_INLINE_ALL
#include "xxhash/xxhash.h"

namespace narrowcast::store::file {

uint64_t checksum(const void* bytes, size_t count) { return XXH3_64bits(bytes, count); }

}  // namespace narrowcast::store::file
