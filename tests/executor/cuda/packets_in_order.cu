// Sequences of calls by packets without host synchronization: streams, CUDA graphs, call numbers that wrap. Also calls
// that end because a rank is missing or makes a different call.
#include <unistd.h>

#include <chrono>
#include <random>

#include "packet_world.h"
#include "support/packet_operations.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using executor::cuda::PacketCall;
using operation::Operation;

// The i-th value that `rank` sends in a round, in operations that do not reduce.
__host__ __device__ inline uint32_t value_of(uint32_t round, uint32_t rank, uint32_t i) {
  uint32_t x = round * 0x9e3779b9u + rank * 0x85ebca6bu + i;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// The same for reductions: small integers, so their sums are exact in fp32 too.
__host__ __device__ inline uint32_t summand_of(uint32_t round, uint32_t rank, uint32_t i) {
  return value_of(round, rank, i) >> 12;
}
__device__ uint32_t bits_of(uint32_t number, bool floats) {
  return floats ? __float_as_uint(static_cast<float>(number)) : number;
}

// The i-th value that `rank` receives.
__device__ uint32_t expected_value(Operation operation, bool floats, uint32_t round, uint32_t rank, uint32_t ranks,
                                   uint32_t root, uint32_t count, uint32_t i) {
  uint32_t sum = 0;
  switch (operation) {
    case Operation::all_reduce:
    case Operation::reduce:
      for (uint32_t from = 0; from < ranks; ++from) sum += summand_of(round, from, i);
      return bits_of(sum, floats);
    case Operation::reduce_scatter:
      for (uint32_t from = 0; from < ranks; ++from) sum += summand_of(round, from, rank * count + i);
      return bits_of(sum, floats);
    case Operation::all_gather:
    case Operation::gather: return value_of(round, i / count, i % count);
    case Operation::all_to_all: return value_of(round, i / count, rank * count + i % count);
    case Operation::broadcast: return value_of(round, root, i);
    case Operation::scatter: return value_of(round, root, rank * count + i);
  }
  return 0;
}

// counters: the round, and the number of wrong values.
// is_reduced: the values are summands. The table behind reduces() is in host memory.
__global__ void fill_kernel(bool is_reduced, bool floats, uint32_t* values, uint32_t count, uint32_t rank,
                            const uint32_t* counters) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    values[i] = is_reduced ? bits_of(summand_of(counters[0], rank, i), floats) : value_of(counters[0], rank, i);
}
__global__ void check_kernel(Operation operation, bool floats, uint32_t* values, uint32_t values_count, uint32_t rank,
                             uint32_t ranks, uint32_t root, uint32_t count, uint32_t* counters) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < values_count; i += gridDim.x * blockDim.x) {
    if (values[i] != expected_value(operation, floats, counters[0], rank, ranks, root, count, i))
      atomicAdd(&counters[1], 1);
    values[i] = 0xbaadf00d;
  }
}
__global__ void delay_kernel(uint32_t microseconds) {
  for (uint32_t i = 0; i < microseconds; ++i) __nanosleep(1000);
}
__global__ void next_round_kernel(uint32_t* counters) { ++counters[0]; }

struct Step {
  Operation operation;
  uint32_t count;
  int root;
  uint32_t max_ctas;
  bool floats = false;      // whether reductions use fp32 or uint32
  uint32_t misaligned = 0;  // bit mask of ranks whose buffers are not 8-byte aligned
};

// Varies operation, size and number of CTAs. Two in three steps keep the operation and root, so that the root can run
// ahead of the other ranks.
Step random_step(const Step& last, int ranks, uint32_t max_count, std::mt19937& random) {
  const uint32_t size = random() % 3;
  const uint32_t count = size == 0 ? 1 + random() % 20 : size == 1 ? 1 + random() % 3000 : 1 + random() % max_count;
  constexpr uint32_t ctas[] = {1, 2, 5, 8};
  Step step = last;
  step.count = count;
  step.max_ctas = ctas[random() % 4];
  // Often aligned whole words, because there are special kernels for them.
  if (random() % 2 != 0) step.count = (step.count + 1) / 2 * 2;
  step.floats = random() % 2 != 0;
  step.misaligned = random() % 2 != 0 ? random() : 0;
  if (random() % 3 != 0) return step;
  step.operation = packet_operations()[random() % packet_operations().size()];
  step.root = static_cast<int>(random() % static_cast<uint32_t>(ranks));
  return step;
}

// Enqueues on the rank's stream: fill the send buffer, make the call, check the received values.
void enqueue(const TestWorld& world, int rank, const Step& step) {
  const auto ranks = static_cast<uint32_t>(world.ranks());
  const bool is_root = rank == step.root;
  auto* send = reinterpret_cast<uint32_t*>(world.rank(rank).arena) + (step.misaligned >> rank & 1);
  uint32_t* recv = send + TestWorld::arena_bytes / 2 / sizeof *send;
  uint32_t* counters = world.rank(rank).counters;
  const cudaStream_t stream = world.rank(rank).stream;
  const auto operation = step.operation;
  const ncast_dtype dtype = step.floats ? NCAST_FLOAT32 : NCAST_UINT32;
  const bool sends_all =
      operation == Operation::all_to_all || operation == Operation::reduce_scatter || operation == Operation::scatter;
  const bool receives_all =
      operation == Operation::all_to_all || operation == Operation::all_gather || operation == Operation::gather;
  const bool receives = (operation != Operation::gather && operation != Operation::reduce) || is_root;
  world.use(rank);
  fill_kernel<<<2, 256, 0, stream>>>(reduces(operation), step.floats, send, sends_all ? ranks * step.count : step.count,
                                     static_cast<uint32_t>(rank), counters);
  world.launch(rank, {operation, send, recv, step.count, dtype, NCAST_SUM, step.root}, step.max_ctas);
  check_kernel<<<2, 256, 0, stream>>>(operation, step.floats, recv,
                                      !receives      ? 0
                                      : receives_all ? ranks * step.count
                                                     : step.count,
                                      static_cast<uint32_t>(rank), ranks, static_cast<uint32_t>(step.root), step.count,
                                      counters);
  next_round_kernel<<<1, 1, 0, stream>>>(counters);
  REQUIRE_CUDA(cudaGetLastError());
}

void check_counters(const TestWorld& world, uint32_t rounds) {
  for (int rank = 0; rank < world.ranks(); ++rank) {
    CAPTURE(rank);
    uint32_t counters[2];
    REQUIRE_CUDA(cudaMemcpy(counters, world.rank(rank).counters, sizeof counters, cudaMemcpyDefault));
    CHECK(counters[0] == rounds);
    CHECK(counters[1] == 0);
  }
}

void run_steps(const TestWorld& world, uint32_t steps, uint32_t seed) {
  std::mt19937 random(seed);
  Step step{Operation::broadcast, 1, 0, 1};
  for (uint32_t i = 0; i < steps; ++i) {
    step = random_step(step, world.ranks(), 40000, random);
    const int late = static_cast<int>(random() % static_cast<uint32_t>(world.ranks()));
    const uint32_t microseconds = random() % 100;
    for (int rank = 0; rank < world.ranks(); ++rank) {
      world.use(rank);
      if (rank == late) delay_kernel<<<1, 1, 0, world.rank(rank).stream>>>(microseconds);
      enqueue(world, rank, step);
    }
  }
  world.synchronize();
}

int max_ranks() { return is_reduced_run() ? 2 : channel::max_gpu_ranks; }

}  // namespace

TEST_CASE("packets: sequences of different calls are correct without host synchronization") {
  const TimeLimit limit(120);
  const uint32_t steps = is_reduced_run() ? 20 : 200;
  for (int ranks = 2; ranks <= max_ranks(); ++ranks) {
    CAPTURE(ranks);
    const TestWorld world(ranks);
    run_steps(world, steps, static_cast<uint32_t>(ranks));
    check_counters(world, steps);
    world.check_scratch();
  }
}

TEST_CASE("packets: replays of a CUDA graph transfer new data") {
  const TimeLimit limit(120);
  constexpr uint32_t calls = 7;
  const uint32_t replays = is_reduced_run() ? 10 : 100;
  for (const int ranks : {2, 3, 4}) {
    if (ranks > max_ranks()) continue;
    CAPTURE(ranks);
    const TestWorld world(ranks);
    std::vector<cudaGraphExec_t> graphs(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      std::mt19937 random(7);
      const cudaStream_t stream = world.rank(rank).stream;
      world.use(rank);
      REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      Step step{Operation::all_reduce, 1, 0, 1};
      for (uint32_t i = 0; i < calls; ++i) {
        enqueue(world, rank, step);
        step = random_step(step, ranks, 100000, random);
      }
      cudaGraph_t graph = nullptr, outer = nullptr;
      cudaGraphNode_t node = nullptr;
      REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
      // With two ranks, launch it as the child of another graph.
      REQUIRE_CUDA(cudaGraphCreate(&outer, 0));
      REQUIRE_CUDA(cudaGraphAddChildGraphNode(&node, outer, nullptr, 0, graph));
      REQUIRE_CUDA(cudaGraphInstantiate(&graphs[static_cast<size_t>(rank)], ranks == 2 ? outer : graph, 0));
      REQUIRE_CUDA(cudaGraphUpload(graphs[static_cast<size_t>(rank)], stream));
      REQUIRE_CUDA(cudaGraphDestroy(outer));
      REQUIRE_CUDA(cudaGraphDestroy(graph));
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
    }
    for (uint32_t replay = 0; replay < replays; ++replay) {
      for (int rank = 0; rank < ranks; ++rank) {
        world.use(rank);
        REQUIRE_CUDA(cudaGraphLaunch(graphs[static_cast<size_t>(rank)], world.rank(rank).stream));
      }
    }
    world.synchronize();
    check_counters(world, calls * replays);
    world.check_scratch();
    for (const cudaGraphExec_t graph : graphs) REQUIRE_CUDA(cudaGraphExecDestroy(graph));
  }
}

TEST_CASE("packets: call numbers wrap after 2^19 calls without matching old flags") {
  const TimeLimit limit(120);
  for (const int ranks : {2, 5}) {
    if (ranks > max_ranks()) continue;
    CAPTURE(ranks);
    const TestWorld world(ranks);
    // As earlier calls may have left the memory: packets and tokens with the flags that will be used after the wrap.
    constexpr uint32_t numbers = 1u << 19, mark = 1, before = numbers - 7;
    const size_t area = world.area_bytes();
    std::vector<uint32_t> words(area / sizeof(uint32_t), 0xdeadbeef);
    for (size_t i = 0; i < words.size(); i += 4) words[i + 3] = mark * numbers + static_cast<uint32_t>(i / 4 % 16);
    channel::PacketState state{};
    for (channel::CtaState& cta : state.ctas) cta.packet_calls = before;
    for (uint32_t turn = 0; turn < 2; ++turn)
      for (uint32_t& token : state.tokens[turn]) token = mark * numbers + turn;
    std::memcpy(words.data(), &state, sizeof state);
    for (int rank = 0; rank < ranks; ++rank)
      REQUIRE_CUDA(cudaMemcpy(world.state(rank), words.data(), area, cudaMemcpyDefault));
    run_steps(world, 40, 11);
    check_counters(world, 40);
    world.check_scratch();
    REQUIRE_CUDA(cudaMemcpy(&state, world.state(0), sizeof state, cudaMemcpyDefault));
    CHECK(state.ctas[0].packet_calls == before + 40);
  }
}

// Whether a buffer still has the value 0xa5 everywhere.
bool is_untouched(const TestWorld& world, int rank, const void* values, size_t bytes) {
  std::vector<unsigned char> content(bytes);
  world.use(rank);
  REQUIRE_CUDA(cudaMemcpy(content.data(), values, bytes, cudaMemcpyDefault));
  return std::count(content.begin(), content.end(), 0xa5) == static_cast<std::ptrdiff_t>(bytes);
}

TEST_CASE("packets: a stopped rank transfers nothing and keeps its first failure") {
  const TimeLimit limit(60);
  for (const Operation operation : {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter}) {
    for (const uint32_t count : {64u, 65u, 20000u}) {  // short kernels need whole words: 64; the others are general
      CAPTURE(static_cast<int>(operation));
      CAPTURE(count);
      const TestWorld world(2, 0.2);
      const auto call = [&](int rank) {
        char* const send = world.rank(rank).arena;
        world.launch(rank, {operation, send, send + TestWorld::arena_bytes / 2, count, NCAST_FLOAT32, NCAST_SUM, 0}, 4);
      };
      for (int rank = 0; rank < 2; ++rank) {
        world.use(rank);
        REQUIRE_CUDA(cudaMemset(world.rank(rank).arena, 0xa5, TestWorld::arena_bytes));
        REQUIRE_CUDA(cudaDeviceSynchronize());
      }
      call(0);  // times out, because rank 1 makes no call
      world.wait();
      const channel::KernelControl& control = *world.rank(0).control;
      REQUIRE(control.failed == channel::wait_timed_out);
      REQUIRE(control.peer == 1);
      world.use(0);
      REQUIRE_CUDA(cudaMemset(world.rank(0).arena, 0xa5, TestWorld::arena_bytes));
      REQUIRE_CUDA(cudaDeviceSynchronize());
      // Rank 0 sent its packets of the first call, so rank 1 completes that call. The second call would succeed if rank
      // 0 were not stopped.
      call(1);
      world.wait();
      REQUIRE(world.rank(1).control->failed == channel::no_failure);
      world.use(1);
      REQUIRE_CUDA(cudaMemset(world.rank(1).arena, 0xa5, TestWorld::arena_bytes));
      REQUIRE_CUDA(cudaDeviceSynchronize());
      call(1);
      call(0);
      world.wait();
      const char* const recv = world.rank(0).arena + TestWorld::arena_bytes / 2;
      CHECK(is_untouched(world, 0, recv, 3 * count * sizeof(float)));
      CHECK(world.rank(1).control->failed == channel::wait_timed_out);
      CHECK(world.rank(1).control->peer == 0);
      CHECK(control.failed == channel::wait_timed_out);
      CHECK(control.peer == 1);
    }
  }
}

// Two ranks make different calls. Both report a mismatch with the other rank.
void check_mismatch(const PacketCall& first, const PacketCall& second) {
  const TestWorld world(2, 20);
  const PacketCall calls[] = {first, second};
  for (int rank = 0; rank < 2; ++rank) {
    PacketCall call = calls[rank];
    char* const send = world.rank(rank).arena;
    call.send = send;
    call.recv = send + TestWorld::arena_bytes / 2;
    world.launch(rank, call, 4);
  }
  world.wait();
  for (int rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    CHECK(world.rank(rank).control->failed == channel::call_mismatch);
    CHECK(world.rank(rank).control->peer == static_cast<uint32_t>(1 - rank));
  }
}

TEST_CASE("packets: ranks that make different calls report a mismatch") {
  const TimeLimit limit(60);
  const auto call = [](Operation operation, uint64_t count, ncast_redop op, int root, uint32_t mark) {
    return PacketCall{operation, nullptr, nullptr, count, NCAST_FLOAT32, op, root, mark};
  };
  using enum Operation;
  check_mismatch(call(all_reduce, 64, NCAST_SUM, 0, 1), call(all_reduce, 64, NCAST_MAX, 0, 2));
  check_mismatch(call(all_reduce, 64, NCAST_SUM, 0, 1), call(all_reduce, 192, NCAST_SUM, 0, 2));
  check_mismatch(call(all_reduce, 65, NCAST_SUM, 0, 1), call(all_reduce, 100000, NCAST_SUM, 0, 2));
  check_mismatch(call(all_reduce, 64, NCAST_SUM, 0, 1), call(all_gather, 64, NCAST_SUM, 0, 2));
  check_mismatch(call(broadcast, 64, NCAST_SUM, 0, 1), call(broadcast, 64, NCAST_SUM, 1, 2));  // both are roots
  check_mismatch(call(broadcast, 64, NCAST_SUM, 1, 1), call(broadcast, 64, NCAST_SUM, 0, 2));  // neither is
  check_mismatch(call(broadcast, 64, NCAST_SUM, 0, 1), call(all_reduce, 64, NCAST_SUM, 0, 2));
}

TEST_CASE("packets: the host stops calls that wait for a missing rank") {
  const TimeLimit limit(60);
  for (const Operation operation : {Operation::all_reduce, Operation::all_gather, Operation::broadcast}) {
    for (const uint32_t count : {100u, 100000u}) {  // one shot and two, where there are two
      const int ranks = is_reduced_run() ? 2 : 4;
      const TestWorld world(ranks, 0);
      for (int rank = 0; rank + 1 < ranks; ++rank)
        for (int call = 0; call < 3; ++call) enqueue(world, rank, {operation, count, 0, 4});
      usleep(50000);
      for (int rank = 0; rank + 1 < ranks; ++rank) CHECK(cudaStreamQuery(world.rank(rank).stream) == cudaErrorNotReady);
      const auto begin = std::chrono::steady_clock::now();
      world.stop();
      world.wait();
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(is_reduced_run() ? 30 : 2));
      for (int rank = 0; rank < ranks; ++rank) CHECK(world.rank(rank).control->failed == 0);
    }
  }
}

TEST_CASE("packets: a wait times out and reports the missing rank") {
  const TimeLimit limit(60);
  for (const uint32_t count : {100u, 100000u}) {
    const int ranks = is_reduced_run() ? 2 : 4, missing = 1;
    const TestWorld world(ranks, 0.1);
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != missing) enqueue(world, rank, {Operation::all_reduce, count, 0, 4});
    world.wait();
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == missing) continue;
      CHECK(world.rank(rank).control->failed == channel::wait_timed_out);
      CHECK(world.rank(rank).control->peer == static_cast<uint32_t>(missing));
      CHECK(world.rank(rank).control->stop == 1);
    }
  }
}

}  // namespace narrowcast::testing
