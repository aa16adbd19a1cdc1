#include "executor/host/local_work.h"

#include <cstring>
#include <vector>

#include "executor/host/reduction.h"

namespace narrowcast::executor::host {
namespace {

// Calls run one at a time, before they return.
class HostWork final : public LocalWork {
 public:
  ncast_status allocate(size_t bytes, void** memory) override {
    memory_ = std::make_unique_for_overwrite<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1);
    *memory = memory_.get();
    return NCAST_OK;
  }

  ncast_status enter(ncast_stream) override { return NCAST_OK; }
  ncast_status leave(ncast_stream) override { return NCAST_OK; }

  bool may_overlap(uint32_t) const override { return false; }
  ncast_stream side_stream(int) const override { return nullptr; }
  ncast_status set_mark(int, ncast_stream) override { return NCAST_OK; }
  ncast_status wait_for_mark(int, ncast_stream) override { return NCAST_OK; }

  ncast_status clear(void* memory, size_t bytes, ncast_stream) override {
    std::memset(memory, 0, bytes);
    return NCAST_OK;
  }

  ncast_status copy(const void* from, Strides from_strides, void* to, Strides to_strides, Box box, ncast_dtype dtype,
                    ncast_stream) override {
    const size_t bytes = ncast_dtype_bytes(dtype);
    for (uint64_t plane = 0; plane < box.planes; ++plane) {
      for (uint64_t row = 0; row < box.rows; ++row) {
        const auto offset = [&](Strides strides) { return (plane * strides.plane + row * strides.row) * bytes; };
        std::memcpy(static_cast<std::byte*>(to) + offset(to_strides),
                    static_cast<const std::byte*>(from) + offset(from_strides), box.elems * bytes);
      }
    }
    return NCAST_OK;
  }

  ncast_status scale(const void* from, void* to, uint64_t count, ncast_dtype dtype, const Factor& factor,
                     ncast_stream) override {
    host::scale(dtype, factor, from, count, to);
    return NCAST_OK;
  }
  ncast_status widen(const void* from, void* to, uint64_t count, ncast_dtype dtype, ncast_stream) override {
    accumulate_first(dtype, from, count, to);
    return NCAST_OK;
  }
  ncast_status finish(const void* from, void* to, uint64_t count, ncast_dtype dtype, ncast_redop op, int ranks,
                      ncast_stream) override {
    host::finish(dtype, op, ranks, from, count, to);
    return NCAST_OK;
  }

  ncast_status stop_after_failure(ncast_comm*, ncast_comm*, ncast_stream) override { return NCAST_OK; }

 private:
  std::unique_ptr<std::max_align_t[]> memory_;
};

}  // namespace

ncast_status make_local_work(const ncast_comm_config&, std::unique_ptr<LocalWork>* work) {
  *work = std::make_unique<HostWork>();
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
