#include "codec/kernel_table.h"

#include "doctest/doctest.h"

namespace {

using narrowcast::codec::add_kernel;
using narrowcast::codec::find_kernel;
using narrowcast::codec::Kernel;
using narrowcast::codec::KernelKind;
using narrowcast::codec::visit_kernels;

// No codec of the library has this id.
constexpr ncast_codec unused_id = 250;
const int functions[2] = {};

TEST_CASE("a kernel is found by its kind, codec and type, and by nothing else") {
  add_kernel(KernelKind::move, unused_id, NCAST_FLOAT32, {&functions[0], 16, 8, 1024, 512});
  const Kernel* const kernel = find_kernel(KernelKind::move, unused_id, NCAST_FLOAT32);
  REQUIRE(kernel != nullptr);
  CHECK(kernel->function == &functions[0]);
  CHECK(kernel->max_warps == 16);
  CHECK(kernel->cta_bytes == 512);
  CHECK(find_kernel(KernelKind::relay, unused_id, NCAST_FLOAT32) == nullptr);
  CHECK(find_kernel(KernelKind::move, unused_id + 1, NCAST_FLOAT32) == nullptr);
  CHECK(find_kernel(KernelKind::move, unused_id, NCAST_FLOAT16) == nullptr);
}

TEST_CASE("parameters of the codec do not select the kernel") {
  add_kernel(KernelKind::decode, unused_id, NCAST_FLOAT32, {&functions[0], 1, 1, 0, 0});
  CHECK(find_kernel(KernelKind::decode, unused_id | ncast_codec{7} << 16, NCAST_FLOAT32) != nullptr);
}

TEST_CASE("a kernel that joins later replaces the earlier one, and visits see it once") {
  add_kernel(KernelKind::reduce, unused_id, NCAST_FLOAT32, {&functions[0], 1, 1, 0, 0});
  const Kernel* const earlier = find_kernel(KernelKind::reduce, unused_id, NCAST_FLOAT32);
  add_kernel(KernelKind::reduce, unused_id, NCAST_FLOAT32, {&functions[1], 2, 2, 0, 0});
  CHECK(find_kernel(KernelKind::reduce, unused_id, NCAST_FLOAT32)->function == &functions[1]);
  CHECK(earlier->function == &functions[0]);  // launches in progress may still use it

  struct Seen {
    int first = 0, second = 0;
  } seen;
  const auto visit = [](void* context, const Kernel& kernel) {
    auto* const counts = static_cast<Seen*>(context);
    counts->first += kernel.function == &functions[0] ? 1 : 0;
    counts->second += kernel.function == &functions[1] ? 1 : 0;
  };
  visit_kernels(KernelKind::reduce, visit, &seen);
  CHECK(seen.first == 0);
  CHECK(seen.second == 1);
}

}  // namespace
