// Local work of GPUs. Kernels handle a value per thread: what they take is small beside the time between hosts.
#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "channel/peer/zeroed_memory.h"
#include "device/device_guard.h"
#include "executor/cuda/average.cuh"
#include "executor/cuda/communicator.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/local_work.h"
#include "executor/cuda/scaled_copy.h"
#include "executor/cuda/stream_order.h"
#include "executor/cuda/word_values.cuh"
#include "select/block_split.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {
namespace {

constexpr uint32_t threads = 256, most_ctas = 1024;

template <ncast_dtype Dtype>
__global__ void __launch_bounds__(threads) widen_values(const char* from, char* to, uint64_t count) {
  using Value = typename Number<Dtype>::Value;
  using Accumulator = typename Number<Dtype>::Accumulator;
  for (uint64_t at = uint64_t{blockIdx.x} * threads + threadIdx.x; at < count; at += gridDim.x * threads) {
    uint64_t word = 0;
    memcpy(&word, __builtin_assume_aligned(from + at * sizeof(Value), sizeof(Value)), sizeof(Value));
    Accumulator numbers[word_values<Dtype>];
    widen<Dtype>(word, numbers);
    reinterpret_cast<Accumulator*>(to)[at] = numbers[0];
  }
}

template <ncast_dtype Dtype>
__global__ void __launch_bounds__(threads)
    finish_values(const char* from, char* to, uint64_t count, ncast_redop op, int ranks) {
  using Value = typename Number<Dtype>::Value;
  using Accumulator = typename Number<Dtype>::Accumulator;
  const Average<Accumulator> average(op, ranks);
  for (uint64_t at = uint64_t{blockIdx.x} * threads + threadIdx.x; at < count; at += gridDim.x * threads) {
    const Accumulator sum = reinterpret_cast<const Accumulator*>(from)[at];
    Accumulator numbers[word_values<Dtype>] = {};
    numbers[0] = average.divides() ? average.divided(sum) : average.multiplied(sum);
    const uint64_t word = narrow<Dtype>(numbers);
    memcpy(__builtin_assume_aligned(to + at * sizeof(Value), sizeof(Value)), &word, sizeof(Value));
  }
}

// One thread for each CtaState.
__global__ void pass_on_failure(const channel::KernelControl* failed, channel::KernelControl* control,
                                channel::CtaState* ctas) {
  if (*const_cast<const volatile uint32_t*>(&failed->stop) == 0) return;
  if (threadIdx.x == 0) *const_cast<volatile uint32_t*>(&control->stop) = 1;
  ctas[threadIdx.x].stopped = 1;
}

constexpr auto kernel_of_widening = [](ncast_dtype dtype, auto body) {
  return codec::cuda::dispatch_number(dtype, [&]<ncast_dtype Dtype>() { return body(widen_values<Dtype>); });
};
constexpr auto kernel_of_finish = [](ncast_dtype dtype, auto body) {
  return codec::cuda::dispatch_number(dtype, [&]<ncast_dtype Dtype>() { return body(finish_values<Dtype>); });
};

uint32_t ctas_for(uint64_t count) {
  return static_cast<uint32_t>(std::clamp<uint64_t>((count + threads - 1) / threads, 1, most_ctas));
}

ncast_status checked(const char* what, cudaError_t error) {
  return error == cudaSuccess ? NCAST_OK : channel::cuda_failure(what, error);
}

class GpuWork final : public LocalWork {
 public:
  explicit GpuWork(int device) : device_(device) {}
  ~GpuWork() override {
    const device::DeviceGuard guard(device_);
    for (const cudaStream_t side : sides_)
      if (side != nullptr) cudaStreamDestroy(side);
    for (const cudaEvent_t mark : marks_)
      if (mark != nullptr) cudaEventDestroy(mark);
    cudaFree(memory_);
  }

  ncast_status prepare() {
    const device::DeviceGuard guard(device_);
    cudaError_t error = order_.create();
    for (cudaStream_t& side : sides_)
      if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    for (cudaEvent_t& mark : marks_)
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&mark, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, device_);
    if (error != cudaSuccess) return checked("setting up the communicator", error);
    return checked("loading the kernels", load_local_work());
  }

  ncast_status allocate(size_t bytes, void** memory) override {
    const device::DeviceGuard guard(device_);
    const ncast_status status = checked("allocating memory", cudaMalloc(&memory_, bytes));
    *memory = memory_;
    return status;
  }

  ncast_status enter(ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    return checked("entering a call", order_.enter(handle(stream)));
  }
  ncast_status leave(ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    return checked("leaving a call", order_.leave(handle(stream)));
  }

  bool may_overlap(uint32_t ctas) const override { return ctas <= select::ctas_that_fit(static_cast<uint32_t>(sms_)); }
  ncast_stream side_stream(int number) const override { return sides_[number]; }
  ncast_status set_mark(int mark, ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    return checked("recording an event", cudaEventRecord(marks_[mark], handle(stream)));
  }
  ncast_status wait_for_mark(int mark, ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    return checked("waiting for an event", cudaStreamWaitEvent(handle(stream), marks_[mark]));
  }

  ncast_status clear(void* memory, size_t bytes, ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    return checked("clearing memory", cudaMemsetAsync(memory, 0, bytes, handle(stream)));
  }

  ncast_status copy(const void* from, Strides from_strides, void* to, Strides to_strides, Box box, ncast_dtype dtype,
                    ncast_stream stream) override {
    if (box.elems == 0) return NCAST_OK;
    const device::DeviceGuard guard(device_);
    const size_t value = ncast_dtype_bytes(dtype), width = box.elems * value;
    const size_t from_pitch = from_strides.row * value, to_pitch = to_strides.row * value;
    const bool fits = std::max({from_pitch, to_pitch, width}) <= INT_MAX;  // the limit of 2D copies
    const uint64_t rows = fits ? box.rows : 1, planes = fits ? box.planes : box.planes * box.rows;
    for (uint64_t plane = 0; plane < planes; ++plane) {
      const uint64_t first_row = plane * rows;
      const auto offset = [&](Strides strides) {
        return (first_row / box.rows * strides.plane + first_row % box.rows * strides.row) * value;
      };
      const cudaError_t error =
          cudaMemcpy2DAsync(static_cast<char*>(to) + offset(to_strides), std::max(to_pitch, width),
                            static_cast<const char*>(from) + offset(from_strides), std::max(from_pitch, width), width,
                            rows, cudaMemcpyDeviceToDevice, handle(stream));
      if (error != cudaSuccess) return checked("copying values", error);
    }
    return NCAST_OK;
  }

  ncast_status scale(const void* from, void* to, uint64_t count, ncast_dtype dtype, const Factor& factor,
                     ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    return checked("scaling values", launch_scaled_copy(from, to, count, dtype, factor, handle(stream)));
  }

  ncast_status widen(const void* from, void* to, uint64_t count, ncast_dtype dtype, ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    return checked("widening values", kernel_of_widening(dtype, [&](auto kernel) {
                     kernel<<<ctas_for(count), threads, 0, handle(stream)>>>(static_cast<const char*>(from),
                                                                             static_cast<char*>(to), count);
                     return cudaGetLastError();
                   }));
  }

  ncast_status finish(const void* from, void* to, uint64_t count, ncast_dtype dtype, ncast_redop op, int ranks,
                      ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    return checked("rounding values", kernel_of_finish(dtype, [&](auto kernel) {
                     kernel<<<ctas_for(count), threads, 0, handle(stream)>>>(static_cast<const char*>(from),
                                                                             static_cast<char*>(to), count, op, ranks);
                     return cudaGetLastError();
                   }));
  }

  ncast_status stop_after_failure(ncast_comm* comm, ncast_comm* other, ncast_stream stream) override {
    const device::DeviceGuard guard(device_);
    const auto& failing = static_cast<const Communicator&>(*comm);
    const auto& stopped = static_cast<const Communicator&>(*other);
    pass_on_failure<<<1, channel::cta_states, 0, handle(stream)>>>(failing.kernel_control(), stopped.kernel_control(),
                                                                   stopped.cta_states());
    return checked("passing on failures", cudaGetLastError());
  }

 private:
  static cudaStream_t handle(ncast_stream stream) { return static_cast<cudaStream_t>(stream); }

  static cudaError_t load_local_work() {
    for (int number = NCAST_INT8; ncast_dtype_bytes(static_cast<ncast_dtype>(number)) != 0; ++number) {
      const auto dtype = static_cast<ncast_dtype>(number);
      const auto load = [](auto kernel) { return load_kernel(kernel); };
      if (const cudaError_t error = kernel_of_widening(dtype, load)) return error;
      if (const cudaError_t error = kernel_of_finish(dtype, load)) return error;
    }
    return load_kernel(pass_on_failure);
  }

  const int device_;
  int sms_ = 0;
  StreamOrder order_;
  cudaStream_t sides_[side_streams] = {};
  cudaEvent_t marks_[2] = {};
  void* memory_ = nullptr;
};

}  // namespace

ncast_status make_local_work(const ncast_comm_config& config, std::unique_ptr<LocalWork>* work) {
  auto made = std::make_unique<GpuWork>(config.device);
  if (ncast_status status = made->prepare()) return status;
  *work = std::move(made);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda
