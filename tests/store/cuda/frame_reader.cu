// Readers of tables of blocks on a GPU, against the values that were encoded.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/narrowcast.h"
#include "store/cuda/frame_reader.h"
#include "store/cuda/gather_table.h"

namespace narrowcast::store::cuda::test {
namespace {

#define CHECK_CUDA(call) REQUIRE_MESSAGE((call) == cudaSuccess, cudaGetErrorString(cudaGetLastError()))
#define CHECK_OK(call) REQUIRE_MESSAGE((call) == NCAST_OK, ncast_last_error())

constexpr const char* caller = "frame_reader_test";
constexpr uint64_t frame_elems = 8192, row_bytes = 36;
constexpr size_t guard_bytes = 64;

bool is_reduced() { return std::getenv("NARROWCAST_TEST_REDUCED") != nullptr; }  // for sanitizers

// A table of float32 values in registered memory.
class Fixture {
 public:
  explicit Fixture(uint64_t elems) : values_(elems), frames_(0) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 0.02F);
    for (float& value : values_) value = normal(random);
    std::vector<uint8_t> encoded;
    for (uint64_t first = 0; first < elems; first += frame_elems) {
      const uint64_t count = std::min(frame_elems, elems - first);
      std::vector<uint8_t> frame(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW, count));
      size_t bytes = 0;
      CHECK_OK(ncast_encode(&values_[first], NCAST_FLOAT32, count, NCAST_CODEC_WINDOW, NCAST_NO_CHECKSUM, frame.data(),
                            frame.size(), &bytes));
      offsets_.push_back(encoded.size());
      encoded.insert(encoded.end(), frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
    offsets_.push_back(encoded.size());
    frames_ = Pages(encoded.size());
    std::memcpy(frames_.at(), encoded.data(), encoded.size());
    CHECK_CUDA(cudaHostRegister(frames_.at(), frames_.bytes(), cudaHostRegisterMapped | cudaHostRegisterPortable));
    const FrameTable table{reinterpret_cast<const uint8_t*>(frames_.at()),
                           offsets_.data(),
                           offsets_.size() - 1,
                           NCAST_FLOAT32,
                           NCAST_CODEC_WINDOW,
                           frame_elems,
                           elems,
                           row_bytes};
    CHECK_OK(FrameReader::create(table, 0, &reader_));
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&out_), elems * sizeof(float) + guard_bytes));
  }
  ~Fixture() {
    reader_.reset();
    cudaFree(out_);
    cudaStreamDestroy(stream_);
    cudaHostUnregister(frames_.at());
  }

  uint64_t rows() const { return values_.size() * sizeof(float) / row_bytes; }
  uint8_t* frame(uint64_t number) { return reinterpret_cast<uint8_t*>(frames_.at(offsets_[number])); }

  // How many of these rows are wrong, or have been written behind them.
  size_t wrong_rows(uint64_t first, uint64_t count, uint32_t sms) {
    const size_t bytes = count * row_bytes;
    CHECK_CUDA(cudaMemsetAsync(out_, 0xee, bytes + guard_bytes, stream_));
    CHECK_OK(reader_->read(caller, {nullptr, 0, first, 1}, count, {out_, row_bytes, sms, stream_}));
    std::vector<char> found(bytes + guard_bytes);
    CHECK_CUDA(cudaMemcpyAsync(found.data(), out_, found.size(), cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    const auto* const expected = reinterpret_cast<const char*>(values_.data()) + first * row_bytes;
    size_t wrong = 0;
    for (uint64_t row = 0; row < count; ++row)
      wrong += std::memcmp(&found[row * row_bytes], expected + row * row_bytes, row_bytes) != 0;
    for (size_t i = bytes; i < found.size(); ++i) wrong += found[i] != '\xee';
    return wrong;
  }
  // How many bytes are wrong after reads of rows [first, first + count) to row `to` of the output, one after another.
  struct Read {
    uint64_t first, count, to;
  };
  size_t wrong_bytes_after(const std::vector<Read>& reads, uint32_t sms) {
    return wrong_bytes(reads, [&] { enqueue(reads, sms); });
  }
  // The same after `before`, then `captured` in a graph, which is launched twice, and then `after`.
  size_t wrong_bytes_around_graph(const std::vector<Read>& before, const std::vector<Read>& captured,
                                  const std::vector<Read>& after, uint32_t sms) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t launched = nullptr;
    const auto capture = [&] {
      CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      enqueue(captured, sms);
      CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
      CHECK_CUDA(cudaGraphInstantiate(&launched, graph, 0));
      for (int i = 0; i < 2; ++i) CHECK_CUDA(cudaGraphLaunch(launched, stream_));
    };
    std::vector<Read> all = before;
    all.insert(all.end(), captured.begin(), captured.end());
    all.insert(all.end(), after.begin(), after.end());
    const size_t wrong = wrong_bytes(all, [&] {
      enqueue(before, sms);
      capture();
      enqueue(after, sms);
    });
    CHECK_CUDA(cudaGraphExecDestroy(launched));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return wrong;
  }
  bool take_damage() {
    FrameReader::Found found = {};
    CHECK_OK(reader_->take_found(caller, &found, stream_));
    return found.is_damaged;
  }

 private:
  void enqueue(const std::vector<Read>& reads, uint32_t sms) {
    for (const auto& [first, count, to] : reads)
      CHECK_OK(reader_->read(caller, {nullptr, 0, first, 1}, count, {out_ + to * row_bytes, row_bytes, sms, stream_}));
  }
  // run(): enqueues `reads`.
  template <typename Run>
  size_t wrong_bytes(const std::vector<Read>& reads, Run run) {
    std::vector<char> expected(values_.size() * sizeof(float), '\xee'), found(expected.size());
    CHECK_CUDA(cudaMemsetAsync(out_, 0xee, expected.size(), stream_));
    run();
    for (const auto& [first, count, to] : reads)
      std::memcpy(&expected[to * row_bytes], reinterpret_cast<const char*>(values_.data()) + first * row_bytes,
                  count * row_bytes);
    CHECK_CUDA(cudaMemcpyAsync(found.data(), out_, found.size(), cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    size_t wrong = 0;
    for (size_t i = 0; i < found.size(); ++i) wrong += found[i] != expected[i];
    return wrong;
  }

  std::vector<float> values_;
  std::vector<uint64_t> offsets_;
  Pages frames_;
  std::unique_ptr<FrameReader> reader_;
  cudaStream_t stream_ = nullptr;
  char* out_ = nullptr;
};

}  // namespace

TEST_CASE("slices of blocks have the values that were encoded") {
  Fixture table(600 * frame_elems + 900);  // is copied in chunks of several sizes; a short last frame
  const uint64_t rows = table.rows(), frame_rows = frame_elems * sizeof(float) / row_bytes;
  for (const uint32_t sms : {0u, 1u, 4u})
    for (const auto& [first, count] : {std::pair<uint64_t, uint64_t>{0, rows},
                                       {1, rows - 2},
                                       {3 * frame_rows, 2 * frame_rows},
                                       {rows - 1, 1},
                                       {frame_rows - 1, 5 * frame_rows},
                                       {7, 70 * frame_rows},
                                       {9, 500 * frame_rows}}) {
      CAPTURE(first);
      CAPTURE(count);
      CHECK(table.wrong_rows(first, count, sms) == 0);
    }
  CHECK(!table.take_damage());
}

TEST_CASE("reads that follow each other write in order") {
  Fixture table((is_reduced() ? 20 : 200) * frame_elems);
  std::mt19937 random(3);
  const uint64_t rows = table.rows();
  for (const uint32_t sms : {1u, 4u, 16u}) {
    std::vector<Fixture::Read> reads;
    for (int i = 0; i < (is_reduced() ? 3 : 100); ++i) {
      // A long read, and a short one where the long one ends last.
      const uint64_t count = rows / 2 + random() % (rows / 2), end = count - random() % 1000, few = 1 + random() % 2000;
      reads.push_back({random() % (rows - count), count, 0});
      reads.push_back({random() % (rows - few), few, end - few});
    }
    for (const size_t some : {size_t{2}, size_t{3}, reads.size()})
      CHECK(table.wrong_bytes_after({reads.begin(), reads.begin() + static_cast<std::ptrdiff_t>(some)}, sms) == 0);
  }
  CHECK(!table.take_damage());
}

TEST_CASE("reads before, in and after graphs write in order") {
  Fixture table((is_reduced() ? 50 : 200) * frame_elems);  // some are copied, and some read by kernels
  std::mt19937 random(5);
  const uint64_t rows = table.rows();
  for (int i = 0; i < (is_reduced() ? 1 : 10); ++i) {
    std::vector<Fixture::Read> reads[3];
    for (auto& some : reads)
      for (int k = 0; k < 6; ++k) {
        const uint64_t count = k % 3 == 0 ? 1 + random() % 2000 : rows / 2 + random() % (rows / 2);
        some.push_back({random() % (rows - count), count, random() % (rows - count)});
      }
    CHECK(table.wrong_bytes_around_graph(reads[0], reads[1], reads[2], 4) == 0);
  }
  CHECK(!table.take_damage());
}

TEST_CASE("a damaged block is reported, and the others are read") {
  Fixture table(100 * frame_elems);
  const uint64_t frame_rows = frame_elems * sizeof(float) / row_bytes + 2;  // of which it has a part, at most
  constexpr size_t dtype_at = 6, elems_at = 8, first_end_at = NCAST_FRAME_HEADER_BYTES + 3;
  for (const size_t at : {size_t{0}, dtype_at, elems_at, first_end_at})
    for (const uint64_t number : {2, 50, 99}) {
      CAPTURE(at);
      CAPTURE(number);
      table.frame(number)[at] ^= 1;
      CHECK(table.wrong_rows(0, table.rows(), 0) <= frame_rows);
      CHECK(table.take_damage());
      // The first is read by a kernel, the others from copies that begin and end inside this frame.
      const uint64_t middle = frame_rows * number + frame_rows / 2 - 2 * number;
      const uint64_t before = std::min<uint64_t>(middle, 50 * frame_rows), after = table.rows() - middle;
      const std::vector<Fixture::Read> reads = {{0, table.rows(), 0}, {middle - before, before, 0}, {middle, after, 0}};
      table.wrong_bytes_after(reads, 0);
      CHECK(table.take_damage());
      table.frame(number)[at] ^= 1;
      CHECK(table.wrong_rows(0, table.rows(), 0) == 0);
      CHECK(!table.take_damage());
    }
}

}  // namespace narrowcast::store::cuda::test
