// Measures the kernels of the store without its API: gathers of random rows and slices of tables that repeat some
// sample rows, by the number of SMs. Compares rows. Writes JSON (bench/results/README.md). Needs 10 GiB of memory.
// `tools/gpu/store.sh kernels` builds it and measures all tables.
//
//   build/gpu/store_kernels COMMIT [TABLE...] > store_kernels.json    numbers of tables (see main), from 0
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "narrowcast/narrowcast.h"
#include "store/cuda/reader.h"
#include "store/cuda/sample_tables.h"
#include "timed_runs.cuh"

using namespace narrowcast::store;
using namespace narrowcast::store::cuda;
using namespace narrowcast::store::cuda::test;

namespace {

void check(ncast_status status, int line) {
  if (status == NCAST_OK) return;
  std::fprintf(stderr, "line %d: %s\n", line, ncast_last_error());
  std::exit(1);
}

constexpr size_t arena_bytes = size_t{9} << 30, out_bytes = size_t{1} << 30;
uint8_t* arena = nullptr;  // registered
char* out = nullptr;
int64_t* indices = nullptr;  // both in device memory
cudaStream_t stream = nullptr;

void in_parallel(uint64_t count, const std::function<void(uint64_t)>& run) {
  const uint64_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> all;
  for (uint64_t t = 0; t < threads; ++t)
    all.emplace_back([=] {
      for (uint64_t i = count * t / threads; i < count * (t + 1) / threads; ++i) run(i);
    });
  for (std::thread& one : all) one.join();
}

struct Work {
  const char* name;
  Model model;
  Fill fill;
  size_t samples;
  uint64_t raw_bytes;  // of the table
  uint64_t gathered;   // rows
};

// The layout is stride, with slots that 99% of the payloads fit; no row of the sample may be longer than its slot, so
// longer ones are left out.
void measure(const Work& work, bool is_first) {
  std::mt19937_64 random(3);
  const auto model = std::make_shared<Model>(work.model);
  const bool is_coded = model->coder != Coder::RAW;
  const uint64_t row_bytes = model->shape.row_bytes(), rows = work.raw_bytes / row_bytes;
  std::vector<Bytes> samples = rows_of(model->shape, work.samples, work.fill, random),
                     payloads = encoded(model, samples);
  std::vector<uint64_t> sizes;
  for (const Bytes& payload : payloads) sizes.push_back(payload.size());
  std::ranges::sort(sizes);
  const uint64_t stride = is_coded ? (sizes[(sizes.size() - 1) * 99 / 100] + 31) / 32 * 32 : row_bytes;
  std::vector<size_t> fitting;
  for (size_t i = 0; i < payloads.size(); ++i)
    if (payloads[i].size() <= stride) fitting.push_back(i);
  const auto sample_of = [&](uint64_t row) { return fitting[row * 7919 % fitting.size()]; };
  double payload_bytes = 0;
  for (const size_t i : fitting) payload_bytes += static_cast<double>(payloads[i].size());
  in_parallel(rows, [&](uint64_t row) {
    const Bytes& payload = payloads[sample_of(row)];
    std::memcpy(arena + row * stride, payload.data(), payload.size());
  });

  ReaderTable table = {};
  table.model = model.get();
  table.slots = arena;
  table.stride = stride;
  table.unit_bytes = 16;
  table.entries = arena;
  table.entry_stride = (row_bytes + 4 + 31) / 32 * 32;
  table.capacity = table.rows = rows;
  std::unique_ptr<Reader> reader;
  CHECK_RESULT(Reader::create(table, {work.gathered, 0}, &reader));
  std::vector<int64_t> chosen(work.gathered);
  for (int64_t& index : chosen) index = static_cast<int64_t>(random() % rows);
  CHECK_RESULT(cudaMemcpy(indices, chosen.data(), chosen.size() * 8, cudaMemcpyHostToDevice));

  const auto gather = [&](uint32_t sms, bool in_order) {
    const Indices given = {
        .data = indices, .index_bytes = 8, .count = work.gathered, .on_host = false, .in_order = in_order};
    return static_cast<double>(work.gathered * row_bytes) /
           seconds(stream, 7, [&] { CHECK_RESULT(reader->gather(given, rows, {out, row_bytes, sms, stream})); }) / 1e9;
  };
  bool exact = true;
  const auto fetch = [&](uint32_t sms, uint64_t bytes) {
    const uint64_t count = std::min(rows, bytes / row_bytes);
    const double time =
        seconds(stream, 7, [&] { CHECK_RESULT(reader->fetch(0, count, 1, rows, {out, row_bytes, sms, stream})); });
    std::vector<char> found(sms == 4 ? count * row_bytes : 0);
    CHECK_RESULT(cudaMemcpy(found.data(), out, found.size(), cudaMemcpyDeviceToHost));
    for (size_t row = 0; row < found.size() / row_bytes; ++row)
      exact = exact && std::memcmp(&found[row * row_bytes], samples[sample_of(row)].data(), row_bytes) == 0;
    return static_cast<double>(count * row_bytes) / time / 1e9;
  };
  const auto list = [&](const char* name, const std::function<double(uint32_t)>& speed) {
    std::printf(", \"%s\": {", name);
    for (const uint32_t sms : {2u, 4u, 8u, 10u, 16u, 32u})
      std::printf("%s\"%u\": %.1f", sms == 2 ? "" : ", ", sms, speed(sms));
    std::printf("}");
  };
  std::printf("%s\n  {\"table\": \"%s\", \"row_bytes\": %llu, \"table_raw_bytes\": %llu, \"gathered_rows\": %llu",
              is_first ? "" : ",", work.name, static_cast<unsigned long long>(row_bytes),
              static_cast<unsigned long long>(rows * row_bytes), static_cast<unsigned long long>(work.gathered));
  std::printf(", \"stride\": %llu, \"ratio\": %.4f", static_cast<unsigned long long>(stride),
              payload_bytes / static_cast<double>(fitting.size() * row_bytes));
  list("gather_gb_per_s", [&](uint32_t sms) { return gather(sms, false); });
  std::vector<char> found(work.gathered * row_bytes);
  CHECK_RESULT(cudaMemcpy(found.data(), out, found.size(), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < chosen.size(); ++i)
    exact = exact && std::memcmp(&found[i * row_bytes], samples[sample_of(static_cast<uint64_t>(chosen[i]))].data(),
                                 row_bytes) == 0;
  list("gather_in_index_order_gb_per_s", [&](uint32_t sms) { return gather(sms, true); });
  list("fetch_256_mib_gb_per_s", [&](uint32_t sms) { return fetch(sms, size_t{256} << 20); });
  list("fetch_16_mib_gb_per_s", [&](uint32_t sms) { return fetch(sms, size_t{16} << 20); });
  list("fetch_4_mib_gb_per_s", [&](uint32_t sms) { return fetch(sms, size_t{4} << 20); });
  std::printf(", \"exact\": %s}", exact ? "true" : "false");
  std::fflush(stdout);
}

Fill normal_bfloat16() {
  return [](std::mt19937_64& random) {
    std::normal_distribution<float> values(0, 0.02f);
    const auto bits = std::bit_cast<uint32_t>(values(random));
    return uint64_t{(bits + 0x7fff + (bits >> 16 & 1)) >> 16};
  };
}
Fill normal_float16() {
  return [](std::mt19937_64& random) {
    std::normal_distribution<float> values(0, 0.02f);
    return uint64_t{__half_as_ushort(__float2half_rn(values(random)))};
  };
}
Fill normal_float32() {
  return [](std::mt19937_64& random) {
    std::normal_distribution<float> values(0, 0.02f);
    return uint64_t{std::bit_cast<uint32_t>(values(random))};
  };
}

}  // namespace

int main(int argc, char** argv) {
  arena = static_cast<uint8_t*>(mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  in_parallel(arena_bytes >> 12, [](uint64_t page) { arena[page << 12] = 1; });
  CHECK_RESULT(cudaHostRegister(arena, arena_bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
  CHECK_RESULT(cudaStreamCreate(&stream));
  CHECK_RESULT(cudaMalloc(&out, out_bytes));
  CHECK_RESULT(cudaMalloc(&indices, 32 << 20));
  cudaDeviceProp device;
  CHECK_RESULT(cudaGetDeviceProperties(&device, 0));
  const double copied =
      seconds(stream, 7, [] { CHECK_RESULT(cudaMemcpyAsync(out, arena, 256 << 20, cudaMemcpyHostToDevice, stream)); });
  std::string command = "store_kernels COMMIT";
  for (int i = 2; i < argc; ++i) command += std::string(" ") + argv[i];
  std::printf(
      "{\"device\": \"%s\", \"command\": \"%s\", \"commit\": \"%s\", \"copy_256_mib_gb_per_s\": %.1f, "
      "\"tables\": [",
      device.name, command.c_str(), argc > 1 ? argv[1] : "", (256 << 20) / copied / 1e9);
  const uint64_t most = uint64_t{8} << 30, middle = uint64_t{9} << 29;
  const Model bag = plain_model(NCAST_FLOAT32, 1433, {32, 0, 0x3f800000, 0}, true);
  const auto window = [](ncast_dtype dtype, uint64_t elems) { return window_model(dtype, elems, {}, false); };
  const std::vector<Work> all = {
      {"bfloat16, window", window(NCAST_BFLOAT16, 256), normal_bfloat16(), 1000, middle, 100000},
      {"bfloat16, raw", raw_model(NCAST_BFLOAT16, 256), normal_bfloat16(), 1000, middle, 100000},
      {"bfloat16, window", window(NCAST_BFLOAT16, 1024), normal_bfloat16(), 500, middle, 100000},
      {"bfloat16, raw", raw_model(NCAST_BFLOAT16, 1024), normal_bfloat16(), 500, middle, 100000},
      {"float32, window", window(NCAST_FLOAT32, 128), normal_float32(), 1000, middle, 100000},
      {"bag of words, zeros+trim", bag, sparse(trimmed(bag), 28), 500, most, 100000},
      {"bag of words, raw", raw_model(NCAST_FLOAT32, 1433), sparse(trimmed(bag), 28), 500, most, 100000},
      {"bfloat16, raw", raw_model(NCAST_BFLOAT16, 32), normal_bfloat16(), 1000, most, 1000000},
      {"bfloat16, window", window(NCAST_BFLOAT16, 32), normal_bfloat16(), 1000, most, 1000000},
      {"bfloat16, raw", raw_model(NCAST_BFLOAT16, 64), normal_bfloat16(), 1000, most, 1000000},
      {"bfloat16, window", window(NCAST_BFLOAT16, 64), normal_bfloat16(), 1000, most, 1000000},
      {"bfloat16, raw", raw_model(NCAST_BFLOAT16, 128), normal_bfloat16(), 1000, most, 1000000},
      {"bfloat16, window", window(NCAST_BFLOAT16, 128), normal_bfloat16(), 1000, most, 1000000},
      {"bfloat16, raw", raw_model(NCAST_BFLOAT16, 32), normal_bfloat16(), 1000, most, 4000000},
      {"bfloat16, window", window(NCAST_BFLOAT16, 32), normal_bfloat16(), 1000, most, 4000000},
      {"bfloat16, raw", raw_model(NCAST_BFLOAT16, 64), normal_bfloat16(), 1000, most, 4000000},
      {"bfloat16, window", window(NCAST_BFLOAT16, 64), normal_bfloat16(), 1000, most, 4000000},
      {"bfloat16, window", window(NCAST_BFLOAT16, 8192), normal_bfloat16(), 60, middle, 20000},
      {"bfloat16, window", window(NCAST_BFLOAT16, 32768), normal_bfloat16(), 60, middle, 5000},
      {"float32, window", window(NCAST_FLOAT32, 512), normal_float32(), 500, middle, 100000},
      {"float32, window", window(NCAST_FLOAT32, 16384), normal_float32(), 60, middle, 5000},
      {"float16, window", window(NCAST_FLOAT16, 8192), normal_float16(), 60, middle, 20000},
      {"bfloat16, raw", raw_model(NCAST_BFLOAT16, 2048), normal_bfloat16(), 200, middle, 100000},
  };
  std::vector<size_t> chosen;
  for (int i = 2; i < argc; ++i) chosen.push_back(std::strtoul(argv[i], nullptr, 10));
  for (size_t i = 0; argc <= 2 && i < all.size(); ++i) chosen.push_back(i);
  for (size_t i = 0; i < chosen.size(); ++i) measure(all.at(chosen[i]), i == 0);
  std::printf("\n]}\n");
  return 0;
}
