// Batches on the GPU have the frames and the values of single calls on the host.
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codec/frame/gpu_batch.h"
#include "doctest/doctest.h"
#include "narrowcast/cuda.h"

namespace narrowcast::tests {
namespace {

// Sanitizers are slow.
bool is_reduced() { return std::getenv("NARROWCAST_TEST_REDUCED") != nullptr; }

// Arrays of the given types with sizes around those of blocks, and a long one between them.
std::vector<Array> arrays_of(const std::vector<ncast_dtype>& types, ncast_codec codec) {
  std::vector<Array> arrays;
  for (const ncast_dtype dtype : types) {
    const uint64_t block = ncast_slot_bytes(dtype, codec) / ncast_dtype_bytes(dtype);
    size_t number = 0;
    for (const uint64_t elems :
         {uint64_t{0}, uint64_t{1}, uint64_t{7}, block - 1, block, block + 1, 17 * block + 3, uint64_t{0}, 40 * block,
          (is_reduced() ? 100 : 1000) * block + 11, uint64_t{2}, 3 * block})
      arrays.push_back({dtype, elems, number++ % 3 == 1 ? 1u : 0u});
  }
  return arrays;
}

const std::vector<ncast_dtype>& every_dtype() {
  static const std::vector<ncast_dtype> all = [] {
    std::vector<ncast_dtype> types;
    for (int number = 0; number <= last_dtype; ++number) types.push_back(static_cast<ncast_dtype>(number));
    return types;
  }();
  return all;
}

void check_round_trip(GpuBatch& batch, const ncast_cuda_options* options = nullptr) {
  batch.upload();
  batch.encode(options);
  batch.check_frames();
  batch.decode(options);
  batch.check_values();
}

TEST_CASE("a batch of any types on the GPU has the frames and the values of the host") {
  for_each_codec([](const ncast_codec_info& info, ncast_codec codec) {
    CAPTURE(text_of(codec));
    GpuBatch all(codec, arrays_of(every_dtype(), codec), 1);
    check_round_trip(all);
    if (is_reduced() || !info.exact) return;
    for (const ncast_dtype dtype : every_dtype()) {
      CAPTURE(ncast_dtype_name(dtype));
      GpuBatch one(codec, arrays_of({dtype}, codec), 2);
      check_round_trip(one);
    }
  });
}

TEST_CASE("batches of one array, of tiny arrays and on few CTAs have the same frames") {
  for (const uint64_t elems : {0, 1, 2048, 2049, is_reduced() ? 500'000 : 5'000'000}) {
    CAPTURE(elems);
    GpuBatch one(NCAST_CODEC_WINDOW, {{NCAST_BFLOAT16, elems}}, 3);
    check_round_trip(one);
  }
  std::vector<Array> tiny;
  for (size_t i = 0; i < (is_reduced() ? 1500 : 5000); ++i)
    tiny.push_back({every_dtype()[i % every_dtype().size()], i % 5});
  GpuBatch many(NCAST_CODEC_WINDOW, tiny, 4);
  check_round_trip(many);
  for (const uint32_t ctas : {1, 2, 7}) {
    CAPTURE(ctas);
    const ncast_cuda_options options{ctas};
    GpuBatch few(NCAST_CODEC_WINDOW, arrays_of({NCAST_BFLOAT16, NCAST_FLOAT64, NCAST_INT32}, NCAST_CODEC_WINDOW), 5);
    check_round_trip(few, &options);
  }
}

TEST_CASE("100,000 arrays of uneven sizes are one batch") {
  if (is_reduced()) return;
  std::vector<Array> arrays;
  for (size_t i = 0; i < 100'000; ++i) arrays.push_back({NCAST_BFLOAT16, i % 25'000 == 77 ? 3'000'001 : i * 31 % 900});
  GpuBatch batch(NCAST_CODEC_WINDOW, arrays, 6);
  check_round_trip(batch);
  // More than 1,024 frames for each of 128 chunks.
  std::vector<Array> more;
  for (size_t i = 0; i < 300'000; ++i) more.push_back({i % 2 == 0 ? NCAST_UINT8 : NCAST_BFLOAT16, i % 7});
  GpuBatch large(NCAST_CODEC_WINDOW, more, 7);
  check_round_trip(large);
}

TEST_CASE("an array with an invalid argument has a status, and the others are encoded") {
  GpuBatch batch(NCAST_CODEC_WINDOW, arrays_of({NCAST_BFLOAT16, NCAST_UINT8, NCAST_FLOAT64}, NCAST_CODEC_WINDOW), 8);
  batch.dtypes[3] = static_cast<ncast_dtype>(12);
  batch.dtypes[4] = static_cast<ncast_dtype>(-1);
  batch.in[5] = static_cast<const uint8_t*>(batch.in[5]) + 1;
  batch.in[6] = nullptr;
  batch.frame[9] = static_cast<uint8_t*>(batch.frame[9]) + 8;
  batch.frame[10] = nullptr;
  batch.capacities[15] -= 1;
  batch.capacities[7] = 63;
  batch.elems[20] = ~uint64_t{0};
  batch.upload();
  batch.encode();
  batch.check_frames({{3, NCAST_INVALID_ARGUMENT},
                      {4, NCAST_INVALID_ARGUMENT},
                      {5, NCAST_INVALID_ARGUMENT},
                      {6, NCAST_INVALID_ARGUMENT},
                      {9, NCAST_INVALID_ARGUMENT},
                      {10, NCAST_INVALID_ARGUMENT},
                      {15, NCAST_TOO_SMALL},
                      {7, NCAST_TOO_SMALL},
                      {20, NCAST_INVALID_ARGUMENT}});
}

TEST_CASE("a workspace that is too small for the values is a status of all arrays") {
  GpuBatch batch(NCAST_CODEC_WINDOW, {{NCAST_BFLOAT16, 100'000}, {NCAST_BFLOAT16, 3'000'000}}, 9);
  batch.upload();
  batch.workspace_bytes = ncast_cuda_encode_batch_workspace_bytes(2, 4096, NCAST_CODEC_WINDOW);
  batch.encode();
  batch.check_frames({{0, NCAST_TOO_SMALL}, {1, NCAST_TOO_SMALL}});
}

TEST_CASE("hostile frames have a status, and the others are decoded") {
  GpuBatch batch(NCAST_CODEC_WINDOW, arrays_of({NCAST_BFLOAT16, NCAST_INT8, NCAST_FLOAT64}, NCAST_CODEC_WINDOW), 10);
  batch.upload();
  batch.encode();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  std::vector<std::pair<size_t, ncast_status>> bad;
  const auto poke = [&](size_t frame, size_t byte, uint8_t bits) {
    uint8_t value = 0;
    REQUIRE_CUDA(cudaMemcpy(&value, static_cast<uint8_t*>(batch.frame[frame]) + byte, 1, cudaMemcpyDeviceToHost));
    value ^= bits;
    REQUIRE_CUDA(cudaMemcpy(static_cast<uint8_t*>(batch.frame[frame]) + byte, &value, 1, cudaMemcpyHostToDevice));
    bad.emplace_back(frame, NCAST_CORRUPT);
  };
  poke(0, 0, 0x40);                // magic
  poke(3, 9, 0x40);                // elems, which no longer fit the blocks
  poke(4, 18, 0x40);               // wire_bytes
  poke(6, 67, 0x80);               // the end of block 0, beyond the frame
  poke(8, 64 + 4 * 39 + 2, 0x01);  // the end of the last block
  poke(9, 4, 0x02);                // version
  poke(15, 5, 0x01);               // a codec that does not support the type
  poke(17, 48, 0x01);              // reserved
  poke(30, 40, 0x01);              // parameters
  std::vector<size_t> frame_bytes = batch.d_wire_bytes->read();
  frame_bytes[18] -= 16;
  bad.emplace_back(18, NCAST_CORRUPT);
  frame_bytes[19] = 63;
  bad.emplace_back(19, NCAST_CORRUPT);
  batch.value_capacities[5] -= 1;
  bad.emplace_back(5, NCAST_TOO_SMALL);
  batch.out[33] = static_cast<uint8_t*>(batch.out[33]) + 1;
  bad.emplace_back(33, NCAST_INVALID_ARGUMENT);
  batch.const_frame[21] = nullptr;
  bad.emplace_back(21, NCAST_INVALID_ARGUMENT);
  batch.upload();
  const DeviceArray<size_t> sizes(frame_bytes);
  batch.decode(nullptr, nullptr, sizes.data());
  batch.check_values(bad);
}

TEST_CASE("a batch decodes what the host decodes when any bit of a frame has changed") {
  GpuBatch batch(NCAST_CODEC_WINDOW, std::vector<Array>(400, {NCAST_BFLOAT16, 5000}), 11);
  batch.upload();
  batch.encode();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  Random random(12);
  std::vector<Bytes> damaged;
  for (size_t i = 0; i < batch.count(); ++i) {
    Bytes frame = batch.expected(i);
    const size_t byte = i < 80 ? i : static_cast<size_t>(random.below(static_cast<int>(frame.size())));
    frame[byte] ^= static_cast<uint8_t>(1 << random.below(8));
    REQUIRE_CUDA(cudaMemcpy(batch.frame[i], frame.data(), frame.size(), cudaMemcpyHostToDevice));
    damaged.push_back(frame);
  }
  batch.decode();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const std::vector<ncast_device_status> statuses = batch.d_statuses->read();
  const std::vector<size_t> value_bytes = batch.d_value_bytes->read();
  for (size_t i = 0; i < batch.count(); ++i) {
    CAPTURE(i);
    // Flags that set a checksum are invalid on the host only: the GPU does not verify checksums.
    Bytes values(10000);
    const ncast_status status =
        ncast_decode(damaged[i].data(), damaged[i].size(), 0, values.data(), values.size(), nullptr);
    const bool has_checksum = (damaged[i][7] & NCAST_CHECKSUM) != 0;
    if (!has_checksum) CHECK(statuses[i] == static_cast<uint32_t>(status));
    if (status != NCAST_OK || statuses[i] != NCAST_OK) continue;
    values.resize(value_bytes[i]);
    Bytes found(values.size());
    REQUIRE_CUDA(cudaMemcpy(found.data(), batch.out[i], found.size(), cudaMemcpyDeviceToHost));
    CHECK(found == values);
  }
}

TEST_CASE("a batch of frames from any encoder decodes, raw ones among them") {
  GpuBatch batch(NCAST_CODEC_WINDOW, {{NCAST_BFLOAT16, 20000}, {NCAST_BFLOAT16, 20000}, {NCAST_FLOAT64, 999}}, 13);
  batch.upload();
  batch.encode();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  // Replace the second frame by a raw one of the same values, with a checksum.
  Bytes values(40000), raw(batch.capacities[1] + 4096);
  REQUIRE_CUDA(cudaMemcpy(values.data(), batch.in[1], values.size(), cudaMemcpyDeviceToHost));
  size_t raw_bytes = 0;
  REQUIRE(ncast_encode(values.data(), NCAST_BFLOAT16, 20000, NCAST_CODEC_RAW, 0, raw.data(), raw.size(), &raw_bytes) ==
          NCAST_OK);
  raw.resize(raw_bytes);
  const DeviceArray<uint8_t> frame(raw);
  batch.const_frame[1] = frame.data();
  std::vector<size_t> frame_bytes = batch.d_wire_bytes->read();
  frame_bytes[1] = raw_bytes;
  const DeviceArray<size_t> sizes(frame_bytes);
  batch.upload();
  batch.decode(nullptr, nullptr, sizes.data());
  batch.check_values();
}

TEST_CASE("a graph of both calls encodes and decodes new values at every replay") {
  GpuBatch first(NCAST_CODEC_WINDOW, arrays_of({NCAST_BFLOAT16, NCAST_FLOAT32, NCAST_INT64}, NCAST_CODEC_WINDOW), 14);
  GpuBatch second(NCAST_CODEC_WINDOW, arrays_of({NCAST_BFLOAT16, NCAST_FLOAT32, NCAST_INT64}, NCAST_CODEC_WINDOW), 15);
  first.upload();
  second.upload();
  cudaStream_t stream = nullptr;
  REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  first.encode(nullptr, stream);
  first.decode(nullptr, stream);
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
  REQUIRE_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  for (int i = 0; i < 3; ++i) {
    REQUIRE_CUDA(cudaGraphLaunch(replay, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    first.check_frames();
    first.check_values();
  }
  // The arrays of arguments are in device memory, so a replay may code other arrays.
  const size_t count = first.count();
  const auto copy = [&](auto& to, const auto& from) {
    REQUIRE_CUDA(cudaMemcpy(to->data(), from->data(), count * sizeof *to->data(), cudaMemcpyDeviceToDevice));
  };
  copy(first.d_in, second.d_in);
  copy(first.d_frame, second.d_frame);
  copy(first.d_const_frame, second.d_const_frame);
  copy(first.d_out, second.d_out);
  REQUIRE_CUDA(cudaDeviceSynchronize());
  REQUIRE_CUDA(cudaGraphLaunch(replay, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  copy(second.d_wire_bytes, first.d_wire_bytes);
  copy(second.d_value_bytes, first.d_value_bytes);
  copy(second.d_statuses, first.d_statuses);
  second.check_frames();
  second.check_values();
  REQUIRE_CUDA(cudaGraphExecDestroy(replay));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
  REQUIRE_CUDA(cudaStreamDestroy(stream));
}

// Keeps a CTA's multiprocessor busy until the host says otherwise, or for 20 seconds.
__global__ void hold_multiprocessors(const volatile uint32_t* released, uint32_t* holding) {
  if (threadIdx.x != 0) return;
  atomicAdd_system(holding, 1);
  uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (*released == 0 && now - begin < 20'000'000'000);
}

TEST_CASE("batches on several streams end while another kernel holds all multiprocessors but one or two") {
  if (is_reduced()) return;  // sanitizers may run one kernel at a time
  int multiprocessors = 0, shared_bytes = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  REQUIRE_CUDA(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  REQUIRE_CUDA(cudaFuncSetAttribute(hold_multiprocessors, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  std::vector<std::unique_ptr<GpuBatch>> batches;
  std::vector<cudaStream_t> streams(4);
  for (cudaStream_t& stream : streams) {
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const std::vector<Array> arrays = arrays_of({NCAST_BFLOAT16, NCAST_FLOAT64}, NCAST_CODEC_WINDOW);
    batches.push_back(std::make_unique<GpuBatch>(NCAST_CODEC_WINDOW, arrays, 16 + batches.size()));
    batches.back()->upload();
  }
  const auto run = [&] {
    for (size_t i = 0; i < batches.size(); ++i) batches[i]->encode(nullptr, streams[i]);
    for (size_t i = 0; i < batches.size(); ++i) batches[i]->decode(nullptr, streams[i]);
  };
  run();  // loads the kernels, which may wait for the kernels that are running
  REQUIRE_CUDA(cudaDeviceSynchronize());
  uint32_t* words = nullptr;
  REQUIRE_CUDA(cudaMallocHost(&words, 2 * sizeof *words));
  cudaStream_t holding = nullptr;
  REQUIRE_CUDA(cudaStreamCreateWithFlags(&holding, cudaStreamNonBlocking));
  for (const int left : {1, 2}) {
    CAPTURE(left);
    volatile uint32_t* const released = words;
    volatile uint32_t* const held = words + 1;
    *released = 0;
    *held = 0;
    const auto count = static_cast<uint32_t>(multiprocessors - left);
    hold_multiprocessors<<<count, 32, shared_bytes, holding>>>(words, words + 1);
    REQUIRE_CUDA(cudaGetLastError());
    while (*held < count && cudaStreamQuery(holding) == cudaErrorNotReady) std::this_thread::yield();
    run();
    for (const cudaStream_t stream : streams) REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(*held == count);
    CHECK(cudaStreamQuery(holding) == cudaErrorNotReady);  // it has not given up
    *released = 1;
    for (const auto& batch : batches) {
      batch->check_frames();
      batch->check_values();
    }
  }
  REQUIRE_CUDA(cudaFreeHost(words));
  REQUIRE_CUDA(cudaStreamDestroy(holding));
  for (const cudaStream_t stream : streams) REQUIRE_CUDA(cudaStreamDestroy(stream));
}

TEST_CASE("batches on the GPU check their arguments and may be empty") {
  CHECK(ncast_cuda_encode_batch(0, nullptr, nullptr, nullptr, NCAST_CODEC_RAW, 0, nullptr, nullptr, nullptr, nullptr,
                                nullptr, 0, nullptr, nullptr) == NCAST_OK);
  CHECK(ncast_cuda_decode_batch(0, nullptr, nullptr, NCAST_CODEC_RAW, nullptr, nullptr, nullptr, nullptr, nullptr, 0,
                                nullptr, nullptr) == NCAST_OK);
  CHECK(ncast_cuda_encode_batch_workspace_bytes(1, 0, 77) == 0);
  const DeviceArray<uint64_t> words(filled<uint64_t>(8, 0));
  void* const pointers = words.data();
  const auto decode = [&](const void* frames, ncast_codec codec, size_t workspace_bytes) {
    return ncast_cuda_decode_batch(1, static_cast<const void* const*>(frames), words.data(), codec,
                                   static_cast<void* const*>(pointers), words.data(), words.data(),
                                   reinterpret_cast<uint32_t*>(words.data()), words.data(), workspace_bytes, nullptr,
                                   nullptr);
  };
  CHECK(decode(nullptr, NCAST_CODEC_WINDOW, 1 << 20) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()).find("frames is NULL") != std::string::npos);
  CHECK(decode(static_cast<char*>(pointers) + 4, NCAST_CODEC_WINDOW, 1 << 20) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()).find("not aligned to 8 bytes") != std::string::npos);
  CHECK(decode(pointers, 77, 1 << 20) == NCAST_INVALID_ARGUMENT);
  CHECK(decode(pointers, NCAST_CODEC_WINDOW, 64) == NCAST_TOO_SMALL);
}

}  // namespace
}  // namespace narrowcast::tests
