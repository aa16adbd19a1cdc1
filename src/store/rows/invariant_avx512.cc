#if defined(__x86_64__)
#include "store/rows/invariant_avx512.h"

#include "store/rows/extract.h"
#include "store/rows/fast.h"

namespace narrowcast::store {

size_t encode_invariant_avx512(const Model& model, const uint8_t* row, uint8_t* payload) {
  return encode_invariant<Bmi2>(model, row, payload);
}

}  // namespace narrowcast::store
#endif
