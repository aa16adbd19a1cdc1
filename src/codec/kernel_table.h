// Kernels by what they do, codec and value type. src/instances/ adds those that the library was built with; a kernel
// that is compiled at run time joins in the same way.
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
  move,    // blocks from rank to rank
  relay,   // blocks that a rank passes on as they come
  reduce,  // blocks of all ranks into one
};
inline constexpr int kernel_kinds = 8;

struct Kernel {
  const void* function;  // a __global__ function, or a cudaKernel_t; of the parameters of its kind
  uint32_t most_warps;   // of a CTA
  // Where a call may use all SMs, memory is the limit: more warps than these would only disturb it.
  uint32_t most_warps_on_all_sms;
  // Shared memory of a CTA: warp_bytes for every warp that codes, and cta_bytes.
  size_t warp_bytes, cta_bytes;
};

// Adds a kernel that will stay, in place of an earlier one of the same kind, codec and type. Any thread, at any time.
void add_kernel(KernelKind kind, ncast_codec codec, ncast_dtype dtype, const Kernel& kernel);
// NULL if there is none. codec: its parameters do not matter. Any thread.
const Kernel* find_kernel(KernelKind kind, ncast_codec codec, ncast_dtype dtype);

// Calls visit(context, kernel) for every kernel of a kind.
void visit_kernels(KernelKind kind, void (*visit)(void* context, const Kernel& kernel), void* context);

}  // namespace narrowcast::codec
