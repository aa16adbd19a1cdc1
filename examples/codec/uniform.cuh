// The codec of uniform.c for GPUs: the same bytes. It lies beside the library, under the same name, and is compiled
// when a communicator between GPUs is created.
//
// 32 values fill `bits` words, so each lane packs and unpacks whole groups of 32.
#include "narrowcast/user_codec.h"

inline constexpr int header_words = 4;

__device__ inline int bits_of(const ncast_user_block& block) { return static_cast<int>(block.parameters[0]); }
__device__ inline int top_of(const ncast_user_block& block) { return 1 << (bits_of(block) - 1); }
__device__ inline double step_of(const ncast_user_block& block, float largest) {
  return static_cast<double>(largest) / (top_of(block) - 2);
}

__device__ inline float load(const ncast_user_block& block, const void* values, uint32_t index) {
  if (block.dtype == NCAST_FLOAT32) return static_cast<const float*>(values)[index];
  return __uint_as_float(static_cast<uint32_t>(static_cast<const uint16_t*>(values)[index]) << 16);
}
__device__ inline void store(const ncast_user_block& block, float value, void* values, uint32_t index) {
  uint32_t bits = isnan(value) ? 0x7fc00000 : __float_as_uint(value);
  if (block.dtype == NCAST_FLOAT32) {
    static_cast<uint32_t*>(values)[index] = bits;
  } else {
    if (!isnan(value)) bits += 0x7fff + (bits >> 16 & 1);
    static_cast<uint16_t*>(values)[index] = static_cast<uint16_t>(bits >> 16);
  }
}

__device__ inline uint64_t mixed(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebull;
  return bits ^ bits >> 31;
}
// A multiple of 2^-24: its product with a float is exact in a double, with and without fused multiply-add.
__device__ inline double random_number(const ncast_user_context& context, uint32_t index) {
  const uint64_t of_call = mixed(static_cast<uint64_t>(context.call) << 32 | context.stage << 16 | context.rank);
  const uint64_t bits = mixed((context.first_elem + index) * 0x9e3779b97f4a7c15ull + of_call);
  return static_cast<double>(static_cast<int64_t>(bits >> 40)) / (1 << 24) - 0.5;
}

__device__ inline int code_of(int top, float value, double step, double random) {
  if (isnan(value)) return -top;
  if (isinf(value)) return value > 0 ? top - 1 : 1 - top;
  if (step == 0) return 0;
  return static_cast<int>(fmin(fmax(nearbyint(value / step + random), 2.0 - top), top - 2.0));
}

__device__ inline uint32_t ncast_user_payload_bytes(const ncast_user_block& block) {
  return header_words * 4 + block.block_elems * bits_of(block) / 8;
}

__device__ inline uint32_t ncast_user_encode(const ncast_user_block& block, const ncast_user_context& context,
                                             const void* values, void* payload, int lane) {
  float largest = 0;
  for (uint32_t i = lane; i < block.block_elems; i += 32) {
    const float value = load(block, values, i);
    if (isfinite(value)) largest = fmaxf(largest, fabsf(value));
  }
  for (int step = 16; step != 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, step));
  auto* const words = static_cast<uint32_t*>(payload);
  if (lane < header_words) words[lane] = lane == 0 ? __float_as_uint(largest) : 0;
  const int bits = bits_of(block), top = top_of(block);
  const double step = step_of(block, largest);
  const double dither = block.parameters[1] > 1.001e-3 ? block.parameters[1] : 0;
  for (uint32_t group = lane; group < block.block_elems / 32; group += 32) {
    uint32_t* to = words + header_words + group * bits;
    uint64_t pending = 0;
    int pending_bits = 0;
    for (uint32_t i = group * 32; i < group * 32 + 32; ++i) {
      const int code = code_of(top, load(block, values, i), step, dither * random_number(context, i));
      pending |= static_cast<uint64_t>(static_cast<uint32_t>(code) & ((1u << bits) - 1)) << pending_bits;
      pending_bits += bits;
      if (pending_bits < 32) continue;
      *to++ = static_cast<uint32_t>(pending);
      pending >>= 32;
      pending_bits -= 32;
    }
  }
  return ncast_user_payload_bytes(block);
}

__device__ inline bool ncast_user_decode(const ncast_user_block& block, const void* payload, uint32_t payload_bytes,
                                         void* values, int lane) {
  if (payload_bytes != ncast_user_payload_bytes(block)) return false;
  const auto* const words = static_cast<const uint32_t*>(payload);
  const float largest = __uint_as_float(words[0]);
  if (!isfinite(largest) || (words[0] >> 31) != 0) return false;
  const int bits = bits_of(block), top = top_of(block);
  const double step = step_of(block, largest);
  for (uint32_t group = lane; group < block.block_elems / 32; group += 32) {
    const uint32_t* from = words + header_words + group * bits;
    uint64_t pending = 0;
    int pending_bits = 0;
    for (uint32_t i = group * 32; i < group * 32 + 32; ++i) {
      if (pending_bits < bits) {
        pending |= static_cast<uint64_t>(*from++) << pending_bits;
        pending_bits += 32;
      }
      int code = static_cast<int>(pending & ((1u << bits) - 1));
      pending >>= bits;
      pending_bits -= bits;
      if (code >= top) code -= 2 * top;
      float value = static_cast<float>(code * step);
      if (code == -top) value = __uint_as_float(0x7fc00000);
      if (code == top - 1 || code == 1 - top) value = __uint_as_float(code > 0 ? 0x7f800000 : 0xff800000);
      store(block, value, values, i);
    }
  }
  return true;
}
