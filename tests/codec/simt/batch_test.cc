// Runs the batch kernels on the host (executor/cuda/generated/simt/machine.h), with a codec that drops zeros at the end
// of a block. This finds faults of the control logic without a GPU.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "executor/cuda/generated/simt/cuda.h"
// Before the kernels, whose includes are replaced (on_host/).
#include "codec/frame/cuda/batch/decode.cuh"
#include "codec/frame/cuda/batch/encode.cuh"
#include "codec/frame/cuda/batch/scatter.cuh"
#include "doctest/doctest.h"

namespace narrowcast::codec::cuda {
namespace {

template <ncast_dtype Dtype>
  requires(Dtype == NCAST_BFLOAT16 || Dtype == NCAST_FLOAT64)
struct Trimmed {
  static constexpr ncast_dtype dtype = Dtype;
  static constexpr uint32_t values_bytes = Dtype == NCAST_FLOAT64 ? 8192 : 4096;
  static constexpr bool is_fixed = false, is_identity = false, is_exact = true;
  struct Scratch {
    uint32_t units;
  };
  static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane) {
    const auto* from = static_cast<const char*>(values);
    if (lane == 0) {
      scratch.units = values_bytes / 16;
      const auto is_zero = [](char byte) { return byte == 0; };
      while (scratch.units > 1 && std::all_of(from + scratch.units * 16 - 16, from + scratch.units * 16, is_zero))
        --scratch.units;
    }
    __syncwarp();
    const uint32_t bytes = scratch.units * 16;
    std::memset(static_cast<char*>(payload) + lane * (values_bytes / 32), 0x5c, values_bytes / 32);
    __syncwarp();
    if (bytes == values_bytes) return bytes;
    for (uint32_t at = lane; at < bytes; at += 32) static_cast<char*>(payload)[at] = from[at];
    __syncwarp();
    return bytes;
  }
  static bool decode(const void* payload, uint32_t bytes, void* values, Scratch&, int lane) {
    for (uint32_t at = lane; at < values_bytes; at += 32)
      static_cast<char*>(values)[at] = at < bytes ? static_cast<const char*>(payload)[at] : 0;
    __syncwarp();
    return true;
  }
};
using Family = CodecFamily<Trimmed>;

BatchCodec codec() {
  BatchCodec result{NCAST_CODEC_WINDOW, {}};
  for (TypeCoding& coding : result.types) coding = raw_coding();
  result.types[NCAST_BFLOAT16] = {4096, 0, false};
  result.types[NCAST_FLOAT64] = {8192, 0, false};
  return result;
}

using Bytes = std::vector<char>;
struct alignas(16) Unit {
  char bytes[16];
};

// Memory that is aligned to 16 bytes, and poisoned.
struct Memory {
  explicit Memory(size_t bytes) : units(bytes / 16 + 2) { std::memset(units.data(), 0xa5, units.size() * 16); }
  char* at() { return units[0].bytes; }
  std::vector<Unit> units;
};

struct Array {
  ncast_dtype dtype;
  uint64_t elems;
};

// The frame of an array, encoded in the simplest way.
Bytes frame_of(const Array& array, const char* values) {
  const BatchCodec table = codec();
  const TypeCoding coding = table.types[array.dtype];
  const uint64_t raw_bytes = array.elems * ncast_dtype_bytes(array.dtype);
  format::FrameHeader header = batch_header(table, static_cast<uint32_t>(array.dtype), coding.is_raw, array.elems, 0);
  Bytes frame(coding.is_raw ? sizeof header : header.wire_bytes);
  for (uint64_t begin = 0, block = 0; begin < raw_bytes; begin += coding.block_bytes, ++block) {
    const uint64_t bytes = std::min<uint64_t>(raw_bytes - begin, coding.block_bytes);
    uint64_t stored = format::aligned(bytes);
    if (!coding.is_raw && bytes == coding.block_bytes) {
      const auto is_zero = [](char byte) { return byte == 0; };
      while (stored > 16 && std::all_of(values + begin + stored - 16, values + begin + stored, is_zero)) stored -= 16;
    }
    const size_t at = frame.size();
    frame.resize(at + stored);
    std::memcpy(frame.data() + at, values + begin, std::min(bytes, stored));
    if (coding.is_raw) continue;
    const auto end = static_cast<uint32_t>((frame.size() - header.wire_bytes) / 16);
    std::memcpy(frame.data() + sizeof header + block * sizeof end, &end, sizeof end);
  }
  header.wire_bytes = frame.size();
  std::memcpy(frame.data(), &header, sizeof header);
  return frame;
}

struct Shape {
  uint32_t ctas, warps;
  uint32_t shared_bytes;
};

// A batch on the host: its arrays, and memory for their frames and the decoded values.
class Batch {
 public:
  Batch(const std::vector<Array>& arrays, uint64_t seed) {
    std::mt19937_64 random(seed);
    uint64_t blocks = 0;
    for (const Array& array : arrays) {
      add(array, random);
      blocks += array.elems * ncast_dtype_bytes(array.dtype) / 4096 + 1;
    }
    max_tiles_ = static_cast<uint32_t>(blocks / min_batch_coders + 1);
    sizes_.assign(arrays.size(), 77);
    raw_sizes_ = sizes_;
    statuses_.assign(arrays.size(), 99);
    workspace_ = std::make_unique<Memory>(layout(max_tiles_).bytes());
  }

  EncodeBatchArguments encoding(uint32_t shared_bytes) {
    return {codec(),        layout(max_tiles_), in_.data(),       dtypes_.data(),   elems_.data(), frame_.data(),
            bounds_.data(), sizes_.data(),      statuses_.data(), workspace_->at(), shared_bytes,  0};
  }
  DecodeBatchArguments decoding(uint32_t shared_bytes) {
    return {codec(),           layout(0),         readable_.data(), sizes_.data(),    out_.data(),
            raw_bytes_.data(), raw_sizes_.data(), statuses_.data(), workspace_->at(), shared_bytes};
  }

  void check_frames() {
    for (size_t i = 0; i < in_.size(); ++i) {
      CAPTURE(i);
      REQUIRE(statuses_[i] == NCAST_OK);
      REQUIRE(sizes_[i] == expected_[i].size());
      REQUIRE(std::memcmp(frame_[i], expected_[i].data(), sizes_[i]) == 0);
      REQUIRE(static_cast<uint8_t>(static_cast<char*>(frame_[i])[sizes_[i]]) == 0xa5);
    }
  }
  void check_values() {
    for (size_t i = 0; i < in_.size(); ++i) {
      CAPTURE(i);
      REQUIRE(statuses_[i] == NCAST_OK);
      REQUIRE(raw_sizes_[i] == raw_bytes_[i]);
      if (raw_sizes_[i] != 0) REQUIRE(std::memcmp(out_[i], in_[i], raw_sizes_[i]) == 0);
      REQUIRE(static_cast<uint8_t>(static_cast<char*>(out_[i])[raw_sizes_[i]]) == 0xa5);
    }
  }

 private:
  BatchLayout layout(uint32_t max_tiles) const { return BatchLayout::of(static_cast<uint32_t>(in_.size()), max_tiles); }
  char* new_memory(size_t bytes) { return memory_.emplace_back(bytes).at(); }

  void add(const Array& array, std::mt19937_64& random) {
    const size_t bytes = array.elems * ncast_dtype_bytes(array.dtype);
    const size_t shift = random() % 3 == 0 ? ncast_dtype_bytes(array.dtype) % 16 : 0;
    char* const values = new_memory(bytes + shift) + shift;
    // Runs of zeros, so that payloads have all lengths.
    for (size_t begin = 0; begin < bytes; begin += 4096) {
      const size_t filled = random() % 4 == 0 ? 4096 : random() % 4096;
      for (size_t i = begin; i < std::min(bytes, begin + 4096); ++i)
        values[i] = i - begin < filled ? static_cast<char>(random() | 1) : 0;
    }
    expected_.push_back(frame_of(array, values));
    in_.push_back(values);
    const size_t bound = sizeof(format::FrameHeader) + format::aligned(bytes) + bytes / 4096 * 4 + 32;
    frame_.push_back(new_memory(bound + 64));
    readable_.push_back(frame_.back());
    bounds_.push_back(bound);
    out_.push_back(new_memory(bytes + shift + 64) + shift);
    raw_bytes_.push_back(bytes);
    dtypes_.push_back(array.dtype);
    elems_.push_back(array.elems);
  }

  std::deque<Memory> memory_;
  std::unique_ptr<Memory> workspace_;
  std::vector<Bytes> expected_;
  std::vector<const void*> in_, readable_;
  std::vector<void*> frame_, out_;
  std::vector<ncast_dtype> dtypes_;
  std::vector<uint64_t> elems_;
  std::vector<size_t> bounds_, raw_bytes_, sizes_, raw_sizes_;
  std::vector<ncast_device_status> statuses_;
  uint32_t max_tiles_ = 0;
};

void lay_out(const auto& arguments, uint64_t seed) {
  simt::Machine machine(seed);
  machine.launch(std::max(arguments.layout.chunks, 2u), lay_out_warps, sizeof(LayOutMemory), [&] {
    clear_tiles(arguments.layout, arguments.workspace);
    lay_out_chunk(arguments, *reinterpret_cast<LayOutMemory*>(simt::shared_memory()));
  });
  REQUIRE(machine.run());
}

// Encodes and decodes batches at the same time, each with a grid of its own. At most `most_ctas` CTAs run at once.
void check(std::vector<Batch>& batches, Shape shape, uint64_t seed, size_t most_ctas = ~size_t{0}) {
  CAPTURE(seed);
  CAPTURE(shape.ctas);
  CAPTURE(most_ctas);
  std::vector<EncodeBatchArguments> encoding;
  for (Batch& batch : batches) lay_out(encoding.emplace_back(batch.encoding(shape.shared_bytes)), seed);
  {
    simt::Machine machine(seed);
    for (const EncodeBatchArguments& arguments : encoding)
      machine.launch(shape.ctas, shape.warps, shape.shared_bytes,
                     [&] { encode_batch<Family>(arguments, simt::shared_memory()); });
    REQUIRE(machine.run(most_ctas));
  }
  for (Batch& batch : batches) batch.check_frames();

  std::vector<DecodeBatchArguments> decoding;
  for (Batch& batch : batches) lay_out(decoding.emplace_back(batch.decoding(shape.shared_bytes)), seed);
  {
    simt::Machine machine(seed);
    for (const DecodeBatchArguments& arguments : decoding)
      machine.launch(shape.ctas, shape.warps, shape.shared_bytes,
                     [&] { decode_batch<Family>(arguments, simt::shared_memory()); });
    REQUIRE(machine.run(most_ctas));
  }
  for (Batch& batch : batches) batch.check_values();
}
void check(const std::vector<Array>& arrays, Shape shape, uint64_t seed, size_t most_ctas = ~size_t{0}) {
  std::vector<Batch> batches;
  batches.emplace_back(arrays, seed);
  check(batches, shape, seed, most_ctas);
}

TEST_CASE("batches have the frames and the values of a simple encoder, whatever the order of warps") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 random(seed);
    const bool has_wide = seed % 3 == 0;
    std::vector<Array> arrays;
    for (int i = 0; i < 12; ++i) {
      const ncast_dtype types[] = {NCAST_BFLOAT16, NCAST_UINT8, NCAST_BFLOAT16, has_wide ? NCAST_FLOAT64 : NCAST_INT32};
      const uint64_t sizes[] = {0, 1, 100, 2048, 2047, 2049, 4096, 9000, random() % 40000};
      arrays.push_back({types[random() % 4], sizes[random() % 9]});
    }
    arrays.push_back({NCAST_BFLOAT16, 60 * 2048 + 5});
    arrays.push_back({NCAST_BFLOAT16, 3});
    for (const Shape shape : {Shape{1, 4, 100'000}, Shape{4, 6, 100'000}, Shape{5, 20, 230'000}})
      check(arrays, shape, seed);
  }
}

TEST_CASE("a batch of many tiny arrays has the frames of a simple encoder") {
  std::vector<Array> arrays;
  for (uint64_t i = 0; i < 2500; ++i) arrays.push_back({i % 3 == 0 ? NCAST_UINT8 : NCAST_BFLOAT16, i % 5});
  check(arrays, {3, 7, 120'000}, 1);
}

TEST_CASE("a frame that is longer than the look-back of a warp has all its payloads in order") {
  check({{NCAST_BFLOAT16, 300 * 2048}, {NCAST_BFLOAT16, 77}, {NCAST_BFLOAT16, 100 * 2048}}, {40, 4, 60'000}, 2);
}

// A GPU need not run all CTAs of a kernel at once: other kernels may use it, and the order in which CTAs start is not
// specified. A CTA that waited for one that has not started would hang here.
TEST_CASE("batches end, however few of their CTAs run at once and in which order they start") {
  for (const size_t most_ctas : {1, 2, 5}) {
    for (uint64_t seed = 20; seed < 23; ++seed) {
      std::vector<Batch> batches;
      batches.emplace_back(std::vector<Array>{{NCAST_BFLOAT16, 90 * 2048}, {NCAST_BFLOAT16, 5}, {NCAST_FLOAT64, 9000}},
                           seed);
      batches.emplace_back(std::vector<Array>{{NCAST_UINT8, 9000}, {NCAST_BFLOAT16, 40 * 2048}}, seed + 100);
      check(batches, {12, 4, 100'000}, seed, most_ctas);
    }
  }
}

TEST_CASE("pages of any size, distance and alignment are scattered to their places, and nothing else is written") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    const uint64_t unit = uint64_t{1} << random() % 6;
    const auto page_count = static_cast<uint32_t>(1 + random() % 5), row_count = static_cast<uint32_t>(random() % 9);
    std::vector<uint64_t> offsets{0}, strides, numbers;
    for (uint32_t page = 0; page < page_count; ++page) {
      const uint64_t bytes = random() % 4 * random() % 700 * unit;
      offsets.push_back(offsets.back() + bytes);
      strides.push_back(bytes + random() % 3 * unit);
    }
    for (uint32_t row = 0; row < row_count; ++row) numbers.push_back(row);
    std::shuffle(numbers.begin(), numbers.end(), random);
    Memory rows(offsets.back() * row_count);
    for (uint64_t i = 0; i < offsets.back() * row_count; ++i) rows.at()[i] = static_cast<char>(random());
    std::deque<Memory> layers;
    std::vector<char*> pages;
    std::vector<Bytes> expected;
    for (uint32_t page = 0; page < page_count; ++page) {
      const uint64_t bytes = strides[page] * row_count, begin = random() % 2 * unit % 16;
      Memory& layer = layers.emplace_back(bytes + 16);
      pages.push_back(layer.at() + begin);
      Bytes& content = expected.emplace_back(layer.at(), layer.at() + bytes + 32);
      for (uint32_t row = 0; row < row_count; ++row)
        std::copy_n(rows.at() + row * offsets.back() + offsets[page], offsets[page + 1] - offsets[page],
                    content.begin() + static_cast<std::ptrdiff_t>(begin + numbers[row] * strides[page]));
    }
    const ScatterArguments arguments{rows.at(),    numbers.data(), row_count,     page_count,
                                     pages.data(), strides.data(), offsets.data()};
    simt::Machine machine(random());
    machine.launch(1 + random() % 4, 2, 0, [&] { scatter_pages(arguments); });
    REQUIRE(machine.run());
    for (uint32_t page = 0; page < page_count; ++page)
      CHECK(std::equal(expected[page].begin(), expected[page].end(), layers[page].at()));
  }
}

}  // namespace
}  // namespace narrowcast::codec::cuda
