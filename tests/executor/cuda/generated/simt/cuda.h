// What generated kernels and those of the store use of CUDA, for machine.h. Included instead of nvrtc_prelude.cuh,
// device/warp.cuh and those of device/ptx/, whose functions it replaces.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "executor/cuda/generated/simt/machine.h"

#define __device__
#define __host__
#define __global__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __shared__ static
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

#define threadIdx (simt::current->thread)
#define blockIdx (simt::current->cta)
#define gridDim (simt::current->ctas)
#define blockDim (simt::current->threads)

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct float2 {
  float x, y;
};
enum cudaError_t { cudaErrorInvalidValue };

template <typename A, typename B>
constexpr auto min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}
template <typename A, typename B>
constexpr auto max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}

inline void __syncwarp(uint32_t = ~0u) { simt::wait_for_warp(); }
inline void __syncthreads() { simt::wait_for_cta(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
template <typename T>
T __shfl_sync(uint32_t, T value, int lane) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  word = simt::exchange(word)[static_cast<uint32_t>(lane) % simt::lanes];
  std::memcpy(&value, &word, sizeof value);
  return value;
}
template <typename T>
T __shfl_up_sync(uint32_t, T value, uint32_t delta, int width) {
  const int lane = static_cast<int>(threadIdx.x % simt::lanes);
  const int from = static_cast<uint32_t>(lane % width) >= delta ? lane - static_cast<int>(delta) : lane;
  return __shfl_sync(~0u, value, from);
}
template <typename T>
T __shfl_xor_sync(uint32_t, T value, int mask) {
  return __shfl_sync(~0u, value, static_cast<int>(threadIdx.x % simt::lanes) ^ mask);
}
inline uint32_t __ballot_sync(uint32_t, bool value) {
  const uint64_t* const values = simt::exchange(value);
  uint32_t mask = 0;
  for (uint32_t i = 0; i < simt::lanes; ++i) mask |= static_cast<uint32_t>(values[i] & 1) << i;
  return mask;
}
inline bool __any_sync(uint32_t mask, bool value) { return __ballot_sync(mask, value) != 0; }
inline bool __all_sync(uint32_t mask, bool value) { return __ballot_sync(mask, value) == ~0u; }
inline uint32_t __reduce_add_sync(uint32_t, uint32_t value) {
  const uint64_t* const values = simt::exchange(value);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < simt::lanes; ++i) sum += static_cast<uint32_t>(values[i]);
  return sum;
}
inline uint32_t __reduce_max_sync(uint32_t, uint32_t value) {
  const uint64_t* const values = simt::exchange(value);
  return static_cast<uint32_t>(*std::max_element(values, values + simt::lanes));
}
inline uint32_t __reduce_or_sync(uint32_t, uint32_t value) {
  const uint64_t* const values = simt::exchange(value);
  uint32_t all = 0;
  for (uint32_t i = 0; i < simt::lanes; ++i) all |= static_cast<uint32_t>(values[i]);
  return all;
}
inline int __popc(uint32_t value) { return std::popcount(value); }
inline int __popcll(unsigned long long value) { return std::popcount(value); }
inline int __ffs(uint32_t value) { return value == 0 ? 0 : std::countr_zero(value) + 1; }
inline int __ffsll(long long value) {
  return value == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(value)) + 1;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift % 32));
}
inline uint32_t __funnelshift_rc(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> std::min(shift, 32u));
}
inline uint32_t __funnelshift_lc(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) << std::min(shift, 32u) >> 32);
}
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i)
    result |= (static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7))) & 0xff) << (8 * i);
  return result;
}
inline uint32_t __viaddmin_u16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 32; i += 16) {
    const uint32_t sum = ((a >> i & 0xffff) + (b >> i & 0xffff)) & 0xffff;
    result |= std::min(sum, c >> i & 0xffff) << i;
  }
  return result;
}
template <typename T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to += value;
  return before;
}
template <typename T>
T atomicExch(T* to, std::type_identity_t<T> value) {
  const T before = *to;
  *to = value;
  simt::poll();
  return before;
}
// Other warps may change the value after the thread has looked at it.
template <typename T>
T atomicCAS(T* to, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  simt::poll();
  const T before = *to;
  if (before == expected) *to = value;
  return before;
}
template <typename T>
T atomicOr(T* to, std::type_identity_t<T> value) {
  const T old = *to;
  *to = old | value;
  return old;
}
inline uint32_t atomicSub(uint32_t* to, uint32_t value) { return atomicAdd(to, 0 - value); }
template <typename T>
void __stcs(T* to, std::type_identity_t<T> value) {
  *to = value;
}
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
#define __builtin_assume(condition) static_cast<void>(0)
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1 / a; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __drcp_rn(double a) { return 1 / a; }

// Value types. Tests on the host use bf16, fp32, fp64 and integers.
struct __nv_bfloat16 {
  uint16_t bits;
  operator float() const { return __uint_as_float(uint32_t{bits} << 16); }
};
struct __nv_bfloat162 {
  uint16_t low, high;
};
inline uint16_t bfloat16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {bfloat16_of(a), bfloat16_of(b)}; }
struct __half {
  uint16_t bits;
  operator float() const { return 0; }
};
struct __half2 {
  uint32_t bits;
};
struct __half2_raw {
  uint32_t bits;
};
inline __half2 __floats2half2_rn(float, float) { return {}; }
inline float2 __half22float2(__half2_raw) { return {}; }
struct __nv_fp8_e4m3 {
  uint8_t bits;
};
struct __nv_fp8_e5m2 {
  uint8_t bits;
};
using __nv_fp8x2_storage_t = uint16_t;
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t, __nv_fp8_interpretation_t) { return {}; }
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2, __nv_saturation_t, __nv_fp8_interpretation_t) { return 0; }

namespace narrowcast::device {

// device/warp.cuh
inline constexpr uint32_t all_lanes = 0xffffffff;
inline int lane_id() { return static_cast<int>(threadIdx.x % 32); }
inline uint32_t warp_id() { return threadIdx.x / 32; }
inline uint32_t highest_bit(uint32_t value) {
  return value == 0 ? ~0u : 31 - static_cast<uint32_t>(std::countl_zero(value));
}
inline uint32_t opaque(uint32_t value) { return value; }
inline uint32_t inclusive_scan(uint32_t value) {
  const uint64_t* const values = simt::exchange(value);
  uint32_t sum = 0;
  for (int i = 0; i <= lane_id(); ++i) sum += static_cast<uint32_t>(values[i]);
  return sum;
}
inline uint32_t inclusive_scan(uint32_t value, uint32_t lanes) {
  const uint64_t* const values = simt::exchange(value);
  uint32_t sum = 0;
  for (auto i = static_cast<uint32_t>(lane_id()) & -lanes; i <= static_cast<uint32_t>(lane_id()); ++i)
    sum += static_cast<uint32_t>(values[i]);
  return sum;
}
inline uint32_t shuffle_down_or_zero(uint32_t value, int by) {
  const uint64_t* const values = simt::exchange(value);
  return lane_id() + by < 32 ? static_cast<uint32_t>(values[lane_id() + by]) : 0;
}
constexpr uint32_t bytes4(uint32_t byte) { return byte * 0x01010101u; }
constexpr uint32_t halves2(uint32_t half) { return half * 0x00010001u; }
inline uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) { return (a & mask) | (b & ~mask); }
inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint32_t bytes = __byte_perm(low, high, selector);
  uint32_t result = 0;
  for (uint32_t i = 0; i < 32; i += 8) {
    const uint32_t byte = bytes >> i & 0xff, is_sign = selector >> (i / 2) & 8;
    result |= (is_sign == 0 ? byte : byte >> 7 != 0 ? 0xff : 0) << i;
  }
  return result;
}

// device/ptx/floats.cuh
inline uint32_t bfloat16s_of(float first, float second) {
  return bfloat16_of(first) | uint32_t{bfloat16_of(second)} << 16;
}
inline uint32_t half_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  // Subnormal halves are multiples of 2^-24.
  if (magnitude < 0x38800000) return sign | static_cast<uint32_t>(std::nearbyint(std::ldexp(std::fabs(value), 24)));
  return sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
}
inline uint32_t halves_of(float first, float second) { return half_of(first) | half_of(second) << 16; }
inline float float_of_half(uint32_t bits) {
  const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff, sign = (bits & 0x8000) << 16;
  if (exponent == 31) return std::bit_cast<float>(mantissa != 0 ? 0x7fffffff : sign | 0x7f800000);
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::bit_cast<float>((exponent + 112) << 23 | mantissa << 13);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}
inline float2 floats_of_halves(uint32_t pair) { return {float_of_half(pair & 0xffff), float_of_half(pair >> 16)}; }
inline float larger_magnitude(float a, float b) {
  return a != a || b != b ? std::bit_cast<float>(0x7fffffff) : std::max(std::fabs(a), std::fabs(b));
}
inline float approximate_reciprocal(float value) { return std::nextafter(1 / value, 0.0f); }
inline constexpr bool has_float8 = false;
inline uint32_t e4m3s_of(float, float) { return 0; }
inline uint32_t e5m2s_of(float, float) { return 0; }

// device/ptx/named_barrier.cuh
inline void sync_warps(uint32_t barrier, uint32_t warps) { simt::wait_for_warps(barrier, warps, true); }
inline bool all_of_warps(uint32_t barrier, uint32_t warps, bool condition) {
  return simt::wait_for_warps(barrier, warps, condition);
}

// device/ptx/stream_order.cuh
inline void wait_for_stream() {}
inline void start_next_kernel() {}

// device/ptx/system_memory.cuh
template <typename T>
T loaded(const T* from) {
  const T value = *from;
  simt::poll();
  return value;
}
inline uint32_t load_acquire(const uint32_t* from) { return loaded(from); }
inline uint64_t load_acquire(const uint64_t* from) { return loaded(from); }
inline uint32_t load_relaxed(const uint32_t* from) { return loaded(from); }
inline uint64_t load_relaxed(const uint64_t* from) { return loaded(from); }
inline uint32_t load_cached(const uint32_t* from) { return *from; }
inline uint32_t load_acquire_cta(const uint32_t* from) { return loaded(from); }
inline void store_relaxed(uint64_t* to, uint64_t value) { *to = value; }
inline void store_relaxed(uint64_t* to, uint64_t first, uint64_t second) { to[0] = first, to[1] = second; }
inline void store_relaxed(uint32_t* to, uint32_t value) { *to = value; }
inline void store_release(uint32_t* to, uint32_t value) { *to = value; }
inline void store_release(uint64_t* to, uint64_t value) { *to = value; }
inline void store_release_cta(uint32_t* to, uint32_t value) { *to = value; }
inline void fence_system() {}
inline void fence_system_total() {}
inline uint4 load_16_bytes_relaxed(const void* from) { return loaded(static_cast<const uint4*>(from)); }
inline void store_16_bytes_relaxed(void* to, uint4 value) { *static_cast<uint4*>(to) = value; }
inline void start_copy_of_16_bytes(void* shared, const void* global) {
  simt::start(simt::current->loads, {shared, global, 16});
}
inline void wait_for_copies_of_16_bytes() { simt::finish(simt::current->loads); }
inline uint64_t nanoseconds() { return 0; }

// device/ptx/async_copy.cuh
inline void start_copy_of_4_bytes(void* shared, const void* global) {
  simt::start(simt::current->loads, {shared, global, 4});
}
inline void start_copy_of_16_bytes_by_line(void* shared, const void* global) { start_copy_of_16_bytes(shared, global); }
inline void commit_copies() { simt::commit_loads(); }
inline void wait_for_all_but(uint32_t groups) { simt::finish_loads_but(groups); }

// device/ptx/bulk_load.cuh
inline constexpr bool has_bulk_loads = true;
// The barrier counts the loads that have been started.
inline void set_up_bulk_loads(uint64_t* barrier) {
  *barrier = 0;
  simt::pending_loads[barrier].clear();
}
inline void start_bulk_load(uint64_t* barrier, void* to, const void* from, uint32_t bytes) {
  ++*barrier;
  simt::start(simt::pending_loads[barrier], {to, from, bytes});
}
inline void wait_for_bulk_load(uint64_t* barrier, uint32_t parity) {
  while ((*barrier & 1) == parity) simt::poll();
  simt::finish(simt::pending_loads[barrier]);
}

// device/ptx/bulk_copy.cuh
inline void order_stores_before_bulk_copies() {}
class LoadBarrier {
 public:
  LoadBarrier(uint64_t*, int lane) : lane_(lane) { __syncwarp(); }
  void load(void* to, const void* from, uint32_t bytes, int lane) {
    __syncwarp();
    if (lane == 0) simt::start(simt::current->bulk_loads, {to, from, bytes});
  }
  void wait() {
    if (lane_ == 0) simt::finish(simt::current->bulk_loads);
    __syncwarp();
  }

 private:
  int lane_;
};
inline void wait_for_store_sources(int lane) {
  if (lane == 0) simt::finish(simt::current->bulk_stores);
  __syncwarp();
}
inline void bulk_store(void* to, const void* from, uint32_t bytes, int lane) {
  __syncwarp();
  if (lane == 0) simt::start(simt::current->bulk_stores, {to, from, bytes});
}
inline void order_memory_before_bulk_copies() {}
inline void wait_for_stores(int lane) { wait_for_store_sources(lane); }

}  // namespace narrowcast::device
