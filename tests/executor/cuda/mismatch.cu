// Ranks that make different calls get MISMATCH, in calls by blocks and by packets.
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>

#include "support/codec_table.h"
#include "support/gpu_rank.h"

namespace narrowcast::testing {
namespace {

constexpr size_t buffer_bytes = 4 << 20;

// Communicators created during its lifetime run every call by blocks.
class ForcedBlocks {
 public:
  ForcedBlocks() { setenv("NARROWCAST_PATH", "blocks", 1); }
  ~ForcedBlocks() { unsetenv("NARROWCAST_PATH"); }
  ForcedBlocks(const ForcedBlocks&) = delete;
};

class Buffers {
 public:
  Buffers() {
    for (float** buffer : {&send, &recv}) {
      EXPECT_CUDA(cudaMalloc(buffer, buffer_bytes));
      EXPECT_CUDA(cudaMemset(*buffer, 0, buffer_bytes));
    }
  }
  ~Buffers() {
    cudaFree(send);
    cudaFree(recv);
  }
  Buffers(const Buffers&) = delete;

  float* send = nullptr;
  float* recv = nullptr;
};

struct RankArguments {
  int rank;
  float *send, *recv;
  ncast_comm* comm;
  cudaStream_t stream;
};
using RankCall = std::function<ncast_status(const RankArguments&)>;

// Waits up to 10 seconds for an error of the communicator. Errors of other ranks arrive with a delay.
ncast_status wait_for_error(ncast_comm* comm, std::string* message) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  ncast_status status = NCAST_OK;
  char text[300];
  while (status == NCAST_OK && std::chrono::steady_clock::now() < end) {
    status = ncast_comm_async_error(comm, text, sizeof text);
    if (status == NCAST_OK) usleep(1000);
  }
  *message = status == NCAST_OK ? "" : text;
  return status;
}

// Runs `call` on every rank and expects MISMATCH on all of them, long before the timeout of 20 seconds.
void check_mismatch(const char* name, const RankCall& call, int ranks = 2) {
  CAPTURE(name);
  run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    GpuRank gpu(rank, ranks, id, everybody, 20);
    const Buffers buffers;
    gpu.begin();
    EXPECT_OK(call({rank, buffers.send, buffers.recv, gpu.comm, gpu.stream}));
    std::string message;
    const ncast_status status = wait_for_error(gpu.comm, &message);
    if (status != NCAST_MISMATCH)
      std::fprintf(stderr, "%s: rank %d got %s: %s\n", name, rank, ncast_status_name(status), message.c_str());
    EXPECT(status == NCAST_MISMATCH);
    EXPECT(message.find("made different calls") != std::string::npos);
    EXPECT_CUDA(cudaStreamSynchronize(gpu.stream));
    EXPECT(call({rank, buffers.send, buffers.recv, gpu.comm, gpu.stream}) == NCAST_MISMATCH);
    gpu.begin();
  });
}

void check_collectives() {
  constexpr ncast_codec raw = NCAST_CODEC_RAW, window = tests::forced(NCAST_CODEC_WINDOW);
  constexpr auto f32 = NCAST_FLOAT32, i32 = NCAST_INT32, bf16 = NCAST_BFLOAT16, f16 = NCAST_FLOAT16;
  check_mismatch("count", [](const RankArguments& r) {
    return ncast_all_reduce(r.send, r.recv, r.rank == 0 ? 40'000 : 80'000, f32, NCAST_SUM, raw, r.comm, r.stream);
  });
  check_mismatch("count of a single value", [](const RankArguments& r) {
    return ncast_all_gather(r.send, r.recv, r.rank == 0 ? 40'000 : 40'001, f32, raw, r.comm, r.stream);
  });
  check_mismatch("dtype", [](const RankArguments& r) {
    return ncast_all_reduce(r.send, r.recv, 40'000, r.rank == 0 ? bf16 : f16, NCAST_SUM, raw, r.comm, r.stream);
  });
  check_mismatch("dtype of moves", [](const RankArguments& r) {
    return ncast_all_to_all(r.send, r.recv, 40'000, r.rank == 0 ? f32 : i32, raw, r.comm, r.stream);
  });
  check_mismatch("codec", [](const RankArguments& r) {
    return ncast_all_gather(r.send, r.recv, 40'000, bf16, r.rank == 0 ? raw : window, r.comm, r.stream);
  });
  check_mismatch("codec of a reduction", [](const RankArguments& r) {
    return ncast_all_reduce(r.send, r.recv, 40'000, bf16, NCAST_SUM, r.rank == 0 ? raw : window, r.comm, r.stream);
  });
  check_mismatch("op", [](const RankArguments& r) {
    return ncast_reduce_scatter(r.send, r.recv, 40'000, f32, r.rank == 0 ? NCAST_SUM : NCAST_AVG, raw, r.comm,
                                r.stream);
  });
  check_mismatch("operation", [](const RankArguments& r) {
    if (r.rank == 0) return ncast_all_gather(r.send, r.recv, 40'000, f32, raw, r.comm, r.stream);
    return ncast_all_to_all(r.send, r.recv, 40'000, f32, raw, r.comm, r.stream);
  });
  check_mismatch("root: every rank sends", [](const RankArguments& r) {
    return ncast_broadcast(r.send, r.recv, 40'000, f32, r.rank, raw, r.comm, r.stream);
  });
  check_mismatch("root: every rank receives", [](const RankArguments& r) {
    return ncast_broadcast(r.send, r.recv, 40'000, f32, 1 - r.rank, raw, r.comm, r.stream);
  });
  check_mismatch("root of a reduction", [](const RankArguments& r) {
    return ncast_reduce(r.send, r.recv, 40'000, f32, NCAST_SUM, r.rank, raw, r.comm, r.stream);
  });
  check_mismatch("a broadcast root whose peer calls all_reduce", [](const RankArguments& r) {
    if (r.rank == 0) return ncast_broadcast(r.send, r.recv, 64, f32, 0, raw, r.comm, r.stream);
    return ncast_all_reduce(r.send, r.recv, 64, f32, NCAST_SUM, raw, r.comm, r.stream);
  });
  check_mismatch("count between two ranks", [](const RankArguments& r) {
    // Rank 0 sends one more value than rank 1 expects.
    const uint64_t send_of_0[] = {8, 30'001}, recv_of_0[] = {8, 30'000}, of_1[] = {30'000, 8}, offsets[] = {0, 40'000};
    if (r.rank == 0)
      return ncast_all_to_all_v(r.send, send_of_0, offsets, r.recv, recv_of_0, offsets, f32, raw, r.comm, r.stream);
    return ncast_all_to_all_v(r.send, of_1, offsets, r.recv, of_1, offsets, f32, raw, r.comm, r.stream);
  });
  check_mismatch(
      "count, of one of three ranks",
      [](const RankArguments& r) {
        return ncast_gather(r.send, r.recv, r.rank == 2 ? 20'000 : 10'000, f32, 0, raw, r.comm, r.stream);
      },
      3);
  check_mismatch(
      "root, of one of three ranks",
      [](const RankArguments& r) {
        return ncast_broadcast(r.send, r.recv, 40'000, f32, r.rank == 2 ? 2 : 0, raw, r.comm, r.stream);
      },
      3);
}

// Rank 0 sends a message and rank 1 expects a different one.
void check_messages(const char* name, uint64_t sent, ncast_dtype sent_dtype, ncast_codec sent_codec, uint64_t received,
                    ncast_dtype received_dtype, ncast_codec received_codec) {
  check_mismatch(name, [&](const RankArguments& r) {
    if (r.rank == 0) return ncast_send(r.send, sent, sent_dtype, 1, sent_codec, r.comm, r.stream);
    return ncast_recv(r.recv, received, received_dtype, 0, received_codec, r.comm, r.stream);
  });
}

}  // namespace

TEST_CASE("MISMATCH: collectives by blocks") {
  const ForcedBlocks blocks;
  check_collectives();
}

TEST_CASE("MISMATCH: collectives by blocks or packets, as decided") {
  check_collectives();
  check_mismatch("a call by packets and one by blocks", [](const RankArguments& r) {
    return ncast_all_reduce(r.send, r.recv, r.rank == 0 ? 64 : 1'000'000, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW,
                            r.comm, r.stream);
  });
}

TEST_CASE("MISMATCH: sends and receives") {
  constexpr ncast_codec raw = NCAST_CODEC_RAW, window = tests::forced(NCAST_CODEC_WINDOW);
  check_messages("a longer send", 2'000, NCAST_FLOAT32, raw, 1'000, NCAST_FLOAT32, raw);
  check_messages("a longer receive", 1'000, NCAST_FLOAT32, raw, 2'000, NCAST_FLOAT32, raw);
  check_messages("a much longer send", 1'000'000, NCAST_FLOAT32, raw, 500'000, NCAST_FLOAT32, raw);
  check_messages("a much longer receive", 500'000, NCAST_FLOAT32, raw, 1'000'000, NCAST_FLOAT32, raw);
  check_messages("dtype", 10'000, NCAST_FLOAT32, raw, 10'000, NCAST_INT32, raw);
  check_messages("codec", 500'000, NCAST_BFLOAT16, window, 500'000, NCAST_BFLOAT16, raw);
  check_messages("codec of the receive", 500'000, NCAST_BFLOAT16, raw, 500'000, NCAST_BFLOAT16, window);
}

// The GPU numbers the calls, so one rank can replay a graph while the other makes the same calls one by one.
TEST_CASE("MISMATCH: a graph and single calls match until their counts differ") {
  constexpr int replays = 6;  // more than CallWords::history
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    GpuRank gpu(rank, 2, id, everybody, 20);
    const Buffers buffers;
    const auto call = [&](uint64_t count) {
      EXPECT_OK(ncast_all_reduce(buffers.send, buffers.recv, 64, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_AUTO, gpu.comm,
                                 gpu.stream));
      EXPECT_OK(ncast_all_gather(buffers.send, buffers.recv, 200'000, NCAST_BFLOAT16, tests::forced(NCAST_CODEC_WINDOW),
                                 gpu.comm, gpu.stream));
      EXPECT_OK(rank == 0 ? ncast_send(buffers.send, 5'000, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, gpu.comm, gpu.stream)
                          : ncast_recv(buffers.recv, 5'000, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, gpu.comm, gpu.stream));
      EXPECT_OK(ncast_all_reduce(buffers.send, buffers.recv, count, NCAST_BFLOAT16, NCAST_SUM,
                                 tests::forced(NCAST_CODEC_WINDOW), gpu.comm, gpu.stream));
    };
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    if (rank == 0) {
      EXPECT_CUDA(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
      call(100'000);
      EXPECT_CUDA(cudaStreamEndCapture(gpu.stream, &graph));
      EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
      EXPECT_CUDA(cudaGraphUpload(executable, gpu.stream));
      EXPECT_CUDA(cudaStreamSynchronize(gpu.stream));
    }
    for (int replay = 0; replay <= replays; ++replay) {
      gpu.begin();
      if (rank == 0) {
        EXPECT_CUDA(cudaGraphLaunch(executable, gpu.stream));
      } else {
        call(replay < replays ? 100'000 : 100'001);
      }
      if (replay == replays) break;
      gpu.end();
      EXPECT(ncast_comm_async_error(gpu.comm, nullptr, 0) == NCAST_OK);
    }
    std::string message;
    EXPECT(wait_for_error(gpu.comm, &message) == NCAST_MISMATCH);
    gpu.end();
    if (rank == 0) {
      EXPECT_CUDA(cudaGraphExecDestroy(executable));
      EXPECT_CUDA(cudaGraphDestroy(graph));
    }
  });
}

}  // namespace narrowcast::testing
