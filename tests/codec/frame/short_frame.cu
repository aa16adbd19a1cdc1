// Short packed frames while something else has most SMs: their CTAs wait for each other, and may not wait for any that
// cannot start.
#include <chrono>
#include <cstdlib>

#include "codec/every_codec.h"
#include "doctest/doctest.h"
#include "narrowcast/cuda.h"
#include "support/device_array.h"

namespace narrowcast::tests {
namespace {

// Has an SM for every CTA, until told to go or for ten seconds.
__global__ void hold_sms(uint32_t* started, const volatile uint32_t* go) {
  atomicAdd(started, 1u);
  for (int i = 0; i < 10'000'000 && *go == 0; ++i) __nanosleep(1000);
}

class HeldSms {
 public:
  explicit HeldSms(int count) {
    int shared_bytes = 0;
    REQUIRE_CUDA(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    REQUIRE_CUDA(cudaFuncSetAttribute(hold_sms, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    REQUIRE_CUDA(cudaMallocHost(&words_, 2 * sizeof *words_));
    words_[0] = words_[1] = 0;
    if (count != 0) hold_sms<<<count, 32, static_cast<size_t>(shared_bytes), stream_>>>(words_, words_ + 1);
    REQUIRE_CUDA(cudaGetLastError());
    while (static_cast<const volatile uint32_t&>(words_[0]) < static_cast<uint32_t>(count)) {
    }
  }
  ~HeldSms() {
    release();
    cudaStreamDestroy(stream_);
    cudaFreeHost(words_);
  }
  void release() {
    static_cast<volatile uint32_t&>(words_[1]) = 1;
    cudaStreamSynchronize(stream_);
  }

 private:
  uint32_t* words_ = nullptr;  // started, go
  cudaStream_t stream_ = nullptr;
};

bool ends_within_seconds(cudaStream_t stream, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (cudaStreamQuery(stream) == cudaErrorNotReady)
    if (std::chrono::steady_clock::now() > end) return false;
  return cudaStreamQuery(stream) == cudaSuccess;
}

void check_codec(ncast_codec codec) {
  Random random(30);
  int sms = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  const ValueType type = codec::window::bfloat16;
  for (const int blocks_of_sm : {7, 18, 31, 36}) {
    Bytes values;
    for (int i = 0; i < blocks_of_sm * sms; ++i) {
      const Bytes block = make_block(type, i % static_cast<int>(pattern_names.size()), random);
      values.insert(values.end(), block.begin(), block.end());
    }
    values.resize(values.size() - 100);
    const uint64_t elems = values.size() / 2;
    Bytes expected(ncast_bound(NCAST_BFLOAT16, codec, elems));
    size_t frame_bytes = 0;
    REQUIRE(ncast_encode(values.data(), NCAST_BFLOAT16, elems, codec, NCAST_NO_CHECKSUM, expected.data(),
                         expected.size(), &frame_bytes) == NCAST_OK);

    cudaStream_t stream = nullptr;
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const DeviceArray<uint8_t> in(values);
    const size_t workspace_bytes = ncast_cuda_workspace_bytes(NCAST_BFLOAT16, codec, elems);
    const DeviceArray<uint8_t> workspace(Bytes(workspace_bytes, 0xa5));
    // Under a sanitizer kernels run one after the other.
    const bool alone = std::getenv("NARROWCAST_TEST_REDUCED") != nullptr;
    for (const int held : alone ? std::vector{0} : std::vector{0, sms / 3, sms - 40, sms - 1, sms}) {
      CAPTURE(text_of(codec));
      CAPTURE(blocks_of_sm);
      CAPTURE(held);
      const DeviceArray<uint8_t> frame(Bytes(expected.size(), 0xa5));
      HeldSms others(held);
      REQUIRE(ncast_cuda_encode(in.data(), NCAST_BFLOAT16, elems, codec, 0, frame.data(), expected.size(),
                                workspace.data(), workspace_bytes, nullptr, stream) == NCAST_OK);
      if (held == sms) others.release();  // others come free while it runs
      REQUIRE(ends_within_seconds(stream, alone ? 60 : 5));
      others.release();
      Bytes found = frame.read();
      found.resize(frame_bytes);
      CHECK(std::equal(found.begin(), found.end(), expected.begin()));
    }
    cudaStreamDestroy(stream);
  }
}

}  // namespace

TEST_CASE("a short frame needs no more SMs than are free") {
  // Payloads of a fixed length need not wait for each other.
  for_each_codec([](const ncast_codec_info& info, ncast_codec codec) {
    if (info.fixed_payload == 0 && type_of(info, NCAST_BFLOAT16) != nullptr) check_codec(codec);
  });
}

}  // namespace narrowcast::tests
