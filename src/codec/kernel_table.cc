#include "codec/kernel_table.h"

#include <atomic>
#include <deque>
#include <mutex>

namespace narrowcast::codec {
namespace {

constexpr int ids = 256, dtypes = NCAST_FLOAT8_E5M2 + 1;

// Constant-initialised, because static objects add kernels before main().
constinit std::atomic<const Kernel*> table[kernel_kinds][dtypes][ids] = {};

std::atomic<const Kernel*>& entry(KernelKind kind, ncast_codec codec, ncast_dtype dtype) {
  return table[static_cast<int>(kind)][dtype][static_cast<uint8_t>(codec)];
}

}  // namespace

void add_kernel(KernelKind kind, ncast_codec codec, ncast_dtype dtype, const Kernel& kernel) {
  static std::mutex mutex;
  static std::deque<Kernel>& kernels = *new std::deque<Kernel>;  // never destroyed: threads may outlive static objects
  const std::lock_guard lock(mutex);
  entry(kind, codec, dtype).store(&kernels.emplace_back(kernel), std::memory_order_release);
}

const Kernel* find_kernel(KernelKind kind, ncast_codec codec, ncast_dtype dtype) {
  return entry(kind, codec, dtype).load(std::memory_order_acquire);
}

void visit_kernels(KernelKind kind, void (*visit)(void* context, const Kernel& kernel), void* context) {
  for (const auto& of_dtype : table[static_cast<int>(kind)])
    for (const std::atomic<const Kernel*>& of_codec : of_dtype)
      if (const Kernel* const kernel = of_codec.load(std::memory_order_acquire)) visit(context, *kernel);
}

}  // namespace narrowcast::codec
