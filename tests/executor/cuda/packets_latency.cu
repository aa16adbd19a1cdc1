// Measures the latency of calls by packets, to choose the constants in packet_shape.cc. It is not a test and is skipped
// by default:
//   [NARROWCAST_TEST_RANKS=4] executor_gpu_test -ns -tc='packets: latency*'
#include <cstdio>
#include <cstdlib>

#include "packet_world.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using executor::cuda::PacketCall;
using executor::cuda::PacketShape;
using operation::Operation;

// The time of a call in microseconds: the mean over a CUDA graph of calls on the slowest rank, minimum of several
// replays.
double measure(const TestWorld& world, Operation operation, uint64_t bytes, const PacketShape& shape) {
  constexpr int calls = 200, replays = 5;
  const auto ranks = static_cast<size_t>(world.ranks());
  std::vector<cudaGraphExec_t> graphs(ranks);
  std::vector<cudaEvent_t> begins(ranks), ends(ranks);
  for (int rank = 0; rank < world.ranks(); ++rank) {
    const auto i = static_cast<size_t>(rank);
    const TestRank& one = world.rank(rank);
    world.use(rank);
    REQUIRE_CUDA(cudaEventCreate(&begins[i]));
    REQUIRE_CUDA(cudaEventCreate(&ends[i]));
    REQUIRE_CUDA(cudaStreamBeginCapture(one.stream, cudaStreamCaptureModeThreadLocal));
    for (int call = 0; call < calls; ++call)
      world.launch(
          rank, {operation, one.arena, one.arena + TestWorld::arena_bytes / 2, bytes / 2, NCAST_BFLOAT16, NCAST_SUM, 0},
          shape);
    cudaGraph_t graph = nullptr;
    REQUIRE_CUDA(cudaStreamEndCapture(one.stream, &graph));
    REQUIRE_CUDA(cudaGraphInstantiate(&graphs[i], graph, 0));
    REQUIRE_CUDA(cudaGraphUpload(graphs[i], one.stream));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    REQUIRE_CUDA(cudaStreamSynchronize(one.stream));
  }
  float least = 1e9f;
  for (int replay = 0; replay < replays; ++replay) {
    for (int rank = 0; rank < world.ranks(); ++rank) {
      const auto i = static_cast<size_t>(rank);
      world.use(rank);
      REQUIRE_CUDA(
          cudaGraphLaunch(graphs[i], world.rank(rank).stream));  // absorbs the different start times of the ranks
      REQUIRE_CUDA(cudaEventRecord(begins[i], world.rank(rank).stream));
      REQUIRE_CUDA(cudaGraphLaunch(graphs[i], world.rank(rank).stream));
      REQUIRE_CUDA(cudaEventRecord(ends[i], world.rank(rank).stream));
    }
    world.synchronize();
    float slowest = 0;
    for (size_t i = 0; i < ranks; ++i) {
      float milliseconds = 0;
      REQUIRE_CUDA(cudaEventElapsedTime(&milliseconds, begins[i], ends[i]));
      slowest = std::max(slowest, milliseconds);
    }
    least = std::min(least, slowest);
  }
  for (size_t i = 0; i < ranks; ++i) {
    world.use(static_cast<int>(i));
    REQUIRE_CUDA(cudaGraphExecDestroy(graphs[i]));
    REQUIRE_CUDA(cudaEventDestroy(begins[i]));
    REQUIRE_CUDA(cudaEventDestroy(ends[i]));
  }
  return least * 1000.0 / calls;
}

int rank_count() {
  if (const char* wanted = std::getenv("NARROWCAST_TEST_RANKS")) return std::atoi(wanted);
  int devices = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&devices));
  return std::clamp(devices, 2, channel::max_gpu_ranks);
}

}  // namespace

TEST_CASE("packets: latency of calls" * doctest::skip()) {
  const TimeLimit limit(300);
  const TestWorld world(rank_count());
  int devices = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&devices));
  const uint32_t most_ctas = devices < world.ranks() ? 8 : channel::max_packet_ctas;
  const auto n = static_cast<uint64_t>(world.ranks());

  std::printf("%d ranks on %d GPUs, bfloat16, us per call in a CUDA graph\n", world.ranks(),
              std::min(devices, world.ranks()));
  for (const auto& [operation, name] :
       {std::pair{Operation::all_reduce, "all_reduce"}, std::pair{Operation::all_gather, "all_gather"},
        std::pair{Operation::reduce_scatter, "reduce_scatter"}, std::pair{Operation::all_to_all, "all_to_all"}}) {
    std::printf("%s, default shape:", name);
    for (uint64_t total = 1 << 10; total <= 2 << 20; total *= 2) {
      const uint64_t bytes = operation == Operation::all_reduce ? total : total / n / 2 * 2;
      if (bytes > executor::cuda::most_packet_bytes(operation, world.ranks(), world.link())) break;
      const PacketShape shape = select::choose_packet_shape(operation, bytes, world.ranks(), world.link(), most_ctas);
      std::printf("  %lu KB %.2f", static_cast<unsigned long>(total >> 10), measure(world, operation, bytes, shape));
      std::fflush(stdout);
    }
    std::printf("\n");
  }

  std::printf("\nall_reduce by shape: CTAs x warps, one shot / two\n");
  for (uint64_t bytes = 1 << 10; bytes <= 2 << 20; bytes *= 4) {
    std::printf("%5lu KB", static_cast<unsigned long>(bytes >> 10));
    for (const uint32_t warps : {2u, 4u, 8u, 16u}) {
      for (uint32_t ctas = 1; ctas <= most_ctas; ctas *= 4) {
        // At least one and at most 8 rows for each warp.
        const uint64_t rows = (bytes + channel::ShortPacket::row_bytes - 1) / channel::ShortPacket::row_bytes,
                       all = uint64_t{ctas} * warps;
        if ((all > rows && all > 2) || all * 8 < rows / (bytes >= 128 << 10 ? n : 1)) continue;
        std::printf("  %ux%u", ctas, warps);
        const uint64_t one_shot =
            executor::cuda::most_packet_bytes(Operation::all_gather, world.ranks(), select::Link::pcie);
        if (bytes <= one_shot) std::printf(" %.2f", measure(world, Operation::all_reduce, bytes, {false, ctas, warps}));
        if (bytes >= 16 << 10 &&
            bytes <= executor::cuda::most_packet_bytes(Operation::all_reduce, world.ranks(), select::Link::pcie))
          std::printf(" / %.2f", measure(world, Operation::all_reduce, bytes, {true, ctas, warps}));
        std::fflush(stdout);
      }
    }
    std::printf("\n");
  }
}

}  // namespace narrowcast::testing
