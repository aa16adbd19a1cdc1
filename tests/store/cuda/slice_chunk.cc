#include "store/cuda/slice_chunk.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "codec/frame/layout.h"
#include "doctest/doctest.h"

namespace narrowcast::store::cuda {
namespace {

constexpr uint64_t most_bytes = 4096;

// The chunks must follow each other, and contain their rows, except for the part of a row that is longer than a chunk.
void check_chunks(const ReaderTable& table, uint64_t first, uint64_t end) {
  const auto begin_of = [&](uint64_t row) {
    return table.stride != 0 ? row * table.stride : uint64_t{table.offsets[row]} * table.unit_bytes;
  };
  for (uint64_t row = first; row < end;) {
    CAPTURE(row);
    const SliceChunk chunk = slice_chunk(table, row, end, most_bytes);
    REQUIRE(chunk.next > row);
    REQUIRE(chunk.next <= end);
    CHECK(chunk.begin % 16 == 0);
    CHECK(chunk.begin <= begin_of(row));
    CHECK(begin_of(row) < chunk.begin + 16);
    CHECK(chunk.bytes <= most_bytes);
    const uint64_t rows_end = begin_of(chunk.next) + 16;  // 16 readable bytes after the last one
    if (chunk.next > row + 1 || rows_end - chunk.begin <= most_bytes) {
      CHECK(chunk.begin + chunk.bytes == rows_end);
    } else {
      CHECK(chunk.bytes == most_bytes);
    }
    row = chunk.next;
  }
}

TEST_CASE("chunks of slices contain the rows of the slice and fit into the ring") {
  for (const uint64_t stride : {1u, 31u, 32u, 512u, 1433u, 2048u, 4064u}) {
    ReaderTable table = {};
    table.stride = stride;
    for (const uint64_t end : {1u, 2u, 777u, 5000u}) check_chunks(table, 0, end);
    check_chunks(table, 7, 5000);
  }
  std::mt19937_64 random(3);
  for (const uint32_t most_units : {1u, 9u, 60u}) {
    std::vector<uint32_t> offsets = {0};
    while (offsets.size() <= 2000) offsets.push_back(offsets.back() + 1 + static_cast<uint32_t>(random() % most_units));
    ReaderTable table = {};
    table.offsets = offsets.data();
    table.unit_bytes = 16;
    for (const uint64_t end : {1u, 2u, 777u, 2000u}) check_chunks(table, 0, end);
    check_chunks(table, 7, 2000);
  }
}

TEST_CASE("chunks of slices fit into the ring in damaged tables with rows that are too long") {
  const std::vector<uint32_t> offsets = {0, 4, 1000, 100000, 100001, 4000000000};
  ReaderTable table = {};
  table.offsets = offsets.data();
  table.unit_bytes = 16;
  for (uint64_t first = 0; first < 5; ++first) check_chunks(table, first, 5);
}

TEST_CASE("copies of a slice grow from its begin, become smaller towards its end, and are not tiny") {
  for (const uint64_t bytes :
       {uint64_t{1}, least_copied, 3 * least_copied, uint64_t{40} << 20, uint64_t{100} << 20, uint64_t{5} << 30}) {
    uint64_t before = 0, largest = 0;
    bool shrinks = false;
    for (uint64_t left = bytes; left != 0;) {
      const uint64_t next = copied_next(left, before);
      REQUIRE(next != 0);
      CHECK(next <= left);
      CHECK(next <= longest_chunk(bytes));
      CHECK(next <= std::max(2 * before, least_copied) + least_copied / 2);
      CHECK(next >= std::min(bytes, least_copied / 2));
      shrinks = shrinks || next < before;
      if (shrinks) CHECK(next <= std::max(before, least_copied * 3 / 2));
      before = next;
      largest = std::max(largest, next);
      left -= next;
    }
    CHECK(before <= least_copied * 3 / 2);
    if (bytes > 10 * most_copied) CHECK(largest == most_copied);
  }
}

TEST_CASE("the bytes before a payload are those of the header, the block ends and the payloads before") {
  const std::vector<uint32_t> ends = {2, 3, 7, 8, 20};
  const uint64_t payload_offset = format::frame_layout(ends.size() * 8, 8).payload_offset;
  std::vector<uint8_t> frame(payload_offset + ends.back() * format::alignment);
  std::memcpy(&frame[sizeof(format::FrameHeader)], ends.data(), ends.size() * sizeof ends[0]);
  const auto before = [&](uint64_t block) {
    return bytes_before_block(frame.data(), frame.size(), payload_offset, block);
  };
  CHECK(before(0) == 0);
  for (uint64_t block = 1; block <= ends.size(); ++block)
    CHECK(before(block) == payload_offset + ends[block - 1] * format::alignment);
}

TEST_CASE("the bytes before a payload are at most those of the frame, also if it is damaged") {
  const std::vector<uint8_t> frame(sizeof(format::FrameHeader) + 16, 0xff);
  for (const uint64_t block : {1u, 4u, 5u, 1000u})
    CHECK(bytes_before_block(frame.data(), frame.size(), frame.size(), block) == frame.size());
}

}  // namespace
}  // namespace narrowcast::store::cuda
