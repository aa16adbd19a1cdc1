// ncast_encode_batch and ncast_decode_batch give the frames and values of ncast_encode and ncast_decode.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/codec.h"
#include "support/values.h"

namespace narrowcast::testing {
namespace {

// Arrays of different types and sizes, and room for their frames.
struct Batch {
  explicit Batch(size_t count) : buffers(count), decoded(count), wire_bytes(count, 77) {
    for (size_t i = 0; i < count; ++i) {
      dtypes.push_back(all_dtypes[i % std::size(all_dtypes)]);
      elems.push_back(i * 7919 % 20000);
      arrays.push_back(random_values(dtypes[i], elems[i], i));
      capacities.push_back(ncast_bound(dtypes[i], NCAST_CODEC_WINDOW, elems[i]));
      buffers[i].resize(capacities[i]);
      decoded[i].resize(arrays[i].size());
    }
    for (size_t i = 0; i < count; ++i) {
      values.push_back(arrays[i].data());
      frames.push_back(buffers[i].data());
      results.push_back(decoded[i].data());
      result_bytes.push_back(decoded[i].size());
    }
  }
  ncast_status encode(int threads, uint32_t flags = 0) {
    return ncast_encode_batch(values.size(), values.data(), dtypes.data(), elems.data(), NCAST_CODEC_WINDOW, flags,
                              frames.data(), capacities.data(), wire_bytes.data(), threads);
  }
  ncast_status decode(int threads) {
    const std::vector<const void*> from(frames.begin(), frames.end());
    return ncast_decode_batch(from.size(), from.data(), wire_bytes.data(), 0, results.data(), result_bytes.data(),
                              threads);
  }

  std::vector<ncast_dtype> dtypes;
  std::vector<uint64_t> elems;
  std::vector<Bytes> arrays, buffers, decoded;
  std::vector<const void*> values;
  std::vector<void*> frames, results;
  std::vector<size_t> capacities, wire_bytes, result_bytes;
};

bool error_contains(const std::string& part) { return std::string(ncast_last_error()).find(part) != std::string::npos; }

TEST_CASE("a batch has the frames and the values of single calls, with any number of threads") {
  for (const int threads : {0, 1, 2, 5}) {
    Batch batch(40);
    REQUIRE(batch.encode(threads) == NCAST_OK);
    for (size_t i = 0; i < batch.values.size(); ++i) {
      Bytes frame(batch.capacities[i]);
      size_t wire_bytes = 0;
      REQUIRE(ncast_encode(batch.values[i], batch.dtypes[i], batch.elems[i], NCAST_CODEC_WINDOW, 0, frame.data(),
                           frame.size(), &wire_bytes) == NCAST_OK);
      CHECK(batch.wire_bytes[i] == wire_bytes);
      frame.resize(wire_bytes);
      CHECK(std::equal(frame.begin(), frame.end(), batch.buffers[i].begin()));
    }
    REQUIRE(batch.decode(threads) == NCAST_OK);
    CHECK(batch.decoded == batch.arrays);
  }
}

TEST_CASE("the first array with an error is named, and the others are encoded and decoded") {
  Batch batch(20);
  batch.capacities[7] = batch.capacities[13] = 10;
  CHECK(batch.encode(3) == NCAST_TOO_SMALL);
  CHECK(error_contains("array 7: ncast_encode"));
  for (size_t i = 0; i < 20; ++i) CHECK((batch.wire_bytes[i] == 0) == (i == 7 || i == 13));
  Batch other(20);
  REQUIRE(other.encode(1) == NCAST_OK);
  for (const size_t i : {5, 9}) other.buffers[i][70] ^= 1;
  CHECK(other.decode(3) == NCAST_CORRUPT);
  CHECK(error_contains("frame 5: ncast_decode"));
  for (size_t i = 0; i < 20; ++i) {
    if (i != 5 && i != 9) CHECK(other.decoded[i] == other.arrays[i]);
  }
}

TEST_CASE("batches check their arguments and may be empty") {
  Batch batch(1);
  CHECK(batch.encode(-1) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("threads is -1"));
  CHECK(ncast_encode_batch(1, nullptr, nullptr, nullptr, NCAST_CODEC_RAW, 0, nullptr, nullptr, nullptr, 0) ==
        NCAST_INVALID_ARGUMENT);
  CHECK(ncast_encode_batch(0, nullptr, nullptr, nullptr, NCAST_CODEC_RAW, 0, nullptr, nullptr, nullptr, 0) == NCAST_OK);
  CHECK(ncast_decode_batch(0, nullptr, nullptr, 0, nullptr, nullptr, 0) == NCAST_OK);
}

TEST_CASE("frames have a checksum unless the caller wants none") {
  const std::pair<uint32_t, bool> cases[] = {{0, true}, {NCAST_CHECKSUM, true}, {NCAST_NO_CHECKSUM, false}};
  for (const auto& [flags, has_checksum] : cases) {
    Batch batch(3);
    REQUIRE(batch.encode(1, flags) == NCAST_OK);
    ncast_frame_info info = {};
    info.struct_bytes = sizeof info;
    REQUIRE(ncast_inspect(batch.frames[2], batch.wire_bytes[2], &info) == NCAST_OK);
    CHECK(((info.flags & NCAST_CHECKSUM) != 0) == has_checksum);
  }
  Batch batch(1);
  CHECK(batch.encode(1, NCAST_CHECKSUM | NCAST_NO_CHECKSUM) == NCAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace narrowcast::testing
