// Bounded codecs in the block kernels: results are within the error bound, and have the same bits on all ranks.
#include <cmath>
#include <cstring>
#include <vector>

#include "narrowcast/explain.h"
#include "support/codec_table.h"
#include "support/gpu_rank.h"

namespace narrowcast::testing {
namespace {

constexpr size_t count = 40'000;  // several blocks for each rank, the last one short

std::vector<float> values_of(int rank) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank));
  return values;
}

class DeviceFloats {
 public:
  explicit DeviceFloats(const std::vector<float>& from) : size_(from.size()) {
    EXPECT_CUDA(cudaMalloc(&data, size_ * sizeof(float)));
    EXPECT_CUDA(cudaMemcpy(data, from.data(), size_ * sizeof(float), cudaMemcpyHostToDevice));
  }
  ~DeviceFloats() { cudaFree(data); }
  DeviceFloats(const DeviceFloats&) = delete;
  std::vector<float> read() const {
    std::vector<float> values(size_);
    EXPECT_CUDA(cudaMemcpy(values.data(), data, size_ * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
  float* data = nullptr;

 private:
  size_t size_;
};

void expect_near(const std::vector<float>& values, const std::vector<float>& expected, double tolerance) {
  for (size_t i = 0; i < values.size(); ++i) EXPECT(std::abs(values[i] - expected[i]) <= tolerance);
}

// results: by rank. gpu.begin() and gpu.end() are barriers, so ranks can compare them.
void expect_same_on_all_ranks(const std::vector<float>& own, int rank, GpuRank& gpu,
                              std::vector<std::vector<float>>& results) {
  results[static_cast<size_t>(rank)] = own;
  gpu.begin();
  for (const std::vector<float>& other : results)
    EXPECT(std::memcmp(other.data(), own.data(), own.size() * sizeof(float)) == 0);
  gpu.begin();
}

void check(ncast_codec codec, int rank, int ranks, GpuRank& gpu, std::vector<std::vector<float>>& results) {
  const ncast_codec forced = tests::forced(codec);
  const double bound = ncast_codec_error_bound(codec, NCAST_FLOAT32, 1);
  const DeviceFloats sent(values_of(rank));
  std::vector<float> exact(count), gathered;
  for (int peer = 0; peer < ranks; ++peer) {
    const std::vector<float> values = values_of(peer);
    for (size_t i = 0; i < count; ++i) exact[i] += values[i];
    gathered.insert(gathered.end(), values.begin(), values.end());
  }

  const DeviceFloats sum(std::vector<float>(count, NAN));
  gpu.begin();
  EXPECT_OK(ncast_all_reduce(sent.data, sum.data, count, NCAST_FLOAT32, NCAST_SUM, forced, gpu.comm, gpu.stream));
  gpu.end();
  const std::vector<double> largest(static_cast<size_t>(ranks), 1.0);
  const double sum_bound =
      ncast_call_error_bound(NCAST_OP_ALL_REDUCE, NCAST_FLOAT32, NCAST_SUM, codec, ranks, largest.data());
  expect_near(sum.read(), exact, sum_bound + 1e-6);  // the expected sums are rounded, too
  expect_same_on_all_ranks(sum.read(), rank, gpu, results);

  const DeviceFloats all(std::vector<float>(count * static_cast<size_t>(ranks), NAN));
  gpu.begin();
  EXPECT_OK(ncast_all_gather(sent.data, all.data, count, NCAST_FLOAT32, forced, gpu.comm, gpu.stream));
  gpu.end();
  expect_near(all.read(), gathered, bound);
  expect_same_on_all_ranks(all.read(), rank, gpu, results);

  EXPECT_CUDA(cudaMemset(all.data, 0xff, gathered.size() * sizeof(float)));
  float* const own = all.data + count * static_cast<size_t>(rank);
  EXPECT_CUDA(cudaMemcpy(own, sent.data, count * sizeof(float), cudaMemcpyDeviceToDevice));
  gpu.begin();
  EXPECT_OK(ncast_all_gather(own, all.data, count, NCAST_FLOAT32, forced, gpu.comm, gpu.stream));
  gpu.end();
  expect_near(all.read(), gathered, bound);
  expect_same_on_all_ranks(all.read(), rank, gpu, results);

  const DeviceFloats spread(rank == 0 ? values_of(0) : std::vector<float>(count, NAN));
  gpu.begin();
  EXPECT_OK(ncast_broadcast(spread.data, spread.data, count, NCAST_FLOAT32, 0, forced, gpu.comm, gpu.stream));
  gpu.end();
  expect_near(spread.read(), values_of(0), bound);
  expect_same_on_all_ranks(spread.read(), rank, gpu, results);
}

}  // namespace

TEST_CASE("blocks: bounded codecs stay within their bound, and all ranks have the same bits") {
  for (const int ranks : {2, 3}) {
    std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
      GpuRank gpu(rank, ranks, id, everybody, 20);
      for (const ncast_codec codec : tests::all_variants())
        if (tests::bounded_type_of(codec, NCAST_FLOAT32) != nullptr) check(codec, rank, ranks, gpu, results);
    });
  }
}

}  // namespace narrowcast::testing
