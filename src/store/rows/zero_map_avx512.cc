#if defined(__x86_64__)
#include "store/rows/zero_map_avx512.h"

namespace narrowcast::store {

size_t split_zeros_avx512(int elem_bytes, const uint8_t* row, size_t elems, uint8_t* map, uint8_t* present) {
  switch (elem_bytes) {
    case 1: return split_zeros_512<uint8_t>(row, elems, map, present);
    case 2: return split_zeros_512<uint16_t>(row, elems, map, present);
    case 4: return split_zeros_512<uint32_t>(row, elems, map, present);
    default: return split_zeros_512<uint64_t>(row, elems, map, present);
  }
}

}  // namespace narrowcast::store
#endif
