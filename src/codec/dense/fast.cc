// Selects the block coder for this CPU. The loops for AVX2 are in avx2.cc.
#include "codec/dense/avx2.h"
#include "codec/dense/block.h"

namespace narrowcast::codec::dense {
namespace {

const BlockCoder& best() {
#if defined(__x86_64__)
  static const bool has_avx2 = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
  }();
  if (has_avx2) return avx2;
#endif
  return reference;
}

}  // namespace

const BlockCoder fast{
    [](const ValueType& type, const uint8_t* values, uint8_t* payload) { return best().encode(type, values, payload); },
    [](const ValueType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
      return best().decode(type, payload, payload_bytes, values);
    }};

}  // namespace narrowcast::codec::dense
