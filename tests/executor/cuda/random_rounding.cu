// Codecs that round at random: the CPU computes the same results from the numbers of calls, also for replays of graphs.
#include <cmath>
#include <cstring>
#include <vector>

#include "codec/codec.h"
#include "codec/frame/encode_frame.h"
#include "select/block_split.h"
#include "support/codec_table.h"
#include "support/gpu_rank.h"

namespace narrowcast::testing {
namespace {

constexpr uint64_t count = 40'000;  // several blocks for each rank, the last one short
constexpr uint32_t calls = 3;
constexpr int ranks = 2;
using Floats = std::vector<float>;

ncast_codec random_codec() {
  ncast_codec codec = 0;
  EXPECT_OK(ncast_codec_parse("int6:rotate=32,rounding=stochastic,seed=7", &codec));
  return codec;
}

Floats values_of(int rank) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank));
  return values;
}

// What ranks decode from the payloads of these values.
Floats received(const Floats& values, const codec::BlockContext& context) {
  const ncast_codec codec = random_codec();
  std::vector<uint8_t> frame(ncast_bound(NCAST_FLOAT32, codec, values.size()));
  size_t bytes = 0;
  EXPECT_OK(codec::encode_frame(values.data(), NCAST_FLOAT32, values.size(), codec, NCAST_NO_CHECKSUM, context,
                                frame.data(), frame.size(), &bytes));
  Floats decoded(values.size());
  EXPECT_OK(ncast_decode(frame.data(), bytes, 0, decoded.data(), decoded.size() * sizeof(float), nullptr));
  return decoded;
}

// The result of an all-reduce: the owner of a piece adds what it receives to its own values, and all ranks store what
// its payload decodes to.
Floats reduced_on_cpu(uint32_t call) {
  const select::RankPieces pieces(operation::Operation::all_reduce, count * sizeof(float), ranks, 0,
                                  select::block_bytes(NCAST_FLOAT32, random_codec()));
  Floats result;
  for (int owner = 0; owner < ranks; ++owner) {
    const uint64_t first = pieces.first(owner) / sizeof(float), elems = pieces.bytes(owner) / sizeof(float);
    Floats sum(elems);
    for (int rank = 0; rank < ranks; ++rank) {
      const Floats all = values_of(rank);
      Floats part(all.begin() + static_cast<std::ptrdiff_t>(first),
                  all.begin() + static_cast<std::ptrdiff_t>(first + elems));
      if (rank != owner) part = received(part, {first, call, static_cast<uint32_t>(rank), 0});
      for (size_t i = 0; i < elems; ++i) sum[i] += part[i];
    }
    const Floats stored = received(sum, {first, call, static_cast<uint32_t>(owner), 1});
    result.insert(result.end(), stored.begin(), stored.end());
  }
  return result;
}

// The results of consecutive all-reduces, which run as kernels or as replays of a graph.
void expect_results_of_cpu(bool in_graph) {
  run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    GpuRank gpu(rank, ranks, id, everybody, 20);
    const Floats own = values_of(rank);
    float *sent = nullptr, *sum = nullptr;
    EXPECT_CUDA(cudaMalloc(&sent, count * sizeof(float)));
    EXPECT_CUDA(cudaMalloc(&sum, count * sizeof(float)));
    EXPECT_CUDA(cudaMemcpy(sent, own.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    const auto reduce = [&] {
      EXPECT_OK(ncast_all_reduce(sent, sum, count, NCAST_FLOAT32, NCAST_SUM, tests::forced(random_codec()), gpu.comm,
                                 gpu.stream));
    };
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    if (in_graph) {
      EXPECT_CUDA(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
      reduce();
      EXPECT_CUDA(cudaStreamEndCapture(gpu.stream, &graph));
      EXPECT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
      EXPECT_CUDA(cudaGraphUpload(replay, gpu.stream));
      EXPECT_CUDA(cudaStreamSynchronize(gpu.stream));
    }
    for (uint32_t call = 0; call < calls; ++call) {
      EXPECT_CUDA(cudaMemset(sum, 0xff, count * sizeof(float)));
      gpu.begin();
      if (in_graph) {
        EXPECT_CUDA(cudaGraphLaunch(replay, gpu.stream));
      } else {
        reduce();
      }
      gpu.end();
      Floats result(count);
      EXPECT_CUDA(cudaMemcpy(result.data(), sum, count * sizeof(float), cudaMemcpyDeviceToHost));
      EXPECT(std::memcmp(result.data(), reduced_on_cpu(call).data(), count * sizeof(float)) == 0);
      EXPECT(std::memcmp(result.data(), reduced_on_cpu(call + 1).data(), count * sizeof(float)) != 0);
    }
    if (in_graph) {
      EXPECT_CUDA(cudaGraphExecDestroy(replay));
      EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    EXPECT_CUDA(cudaFree(sent));
    EXPECT_CUDA(cudaFree(sum));
  });
}

}  // namespace

TEST_CASE("blocks: the CPU replays the random rounding of consecutive calls") { expect_results_of_cpu(false); }

TEST_CASE("blocks: the CPU replays the random rounding of a graph that is launched again") {
  expect_results_of_cpu(true);
}

}  // namespace narrowcast::testing
