// The table of kernels by kind, codec and value type. src/instances/ adds those that the library was built with.
// Kernels that are compiled at run time can be added in the same way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "narrowcast/types.h"

namespace narrowcast::codec {

enum class KernelKind : uint8_t {
  encode_slots,
  encode_frame,
  encode_short_frame,
  decode,
  decode_reduce,
  encode_batch,  // of any_dtype, as decode_batch
  decode_batch,
  move,        // sends blocks from rank to rank
  relay,       // forwards received blocks to another rank
  reduce,      // reduces the blocks of all ranks
  reduce_sum,  // the same, only for sums; not of all types
};
inline constexpr int kernel_kinds = 11;
// The type of kernels that code values of all types.
inline constexpr ncast_dtype any_dtype = NCAST_UINT8;

struct Kernel {
  const void* function;  // a __global__ function or a cudaKernel_t, with the parameters of its kind
  uint32_t max_warps;    // maximum per CTA
  // The maximum per CTA if a call may use all SMs. Memory bandwidth is then the limit, and more warps make it slower.
  uint32_t max_warps_on_all_sms;
  // Shared memory of a CTA: warp_bytes for every warp that codes, plus cta_bytes.
  size_t warp_bytes, cta_bytes;
};

// Adds a kernel, or replaces that of the same kind, codec and type. Kernels are never removed. Any thread, at any time.
void add_kernel(KernelKind kind, ncast_codec codec, ncast_dtype dtype, const Kernel& kernel);
// NULL if there is none. The parameters of `codec` are ignored. Any thread.
const Kernel* find_kernel(KernelKind kind, ncast_codec codec, ncast_dtype dtype);

// Calls visit(context, kernel) for every kernel of a kind.
void visit_kernels(KernelKind kind, void (*visit)(void* context, const Kernel& kernel), void* context);

}  // namespace narrowcast::codec
