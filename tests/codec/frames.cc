// Frames through the C API.
#include <string>

#include "codec/frame/layout.h"
#include "doctest/doctest.h"
#include "narrowcast/codec.h"
#include "patterns.h"
#include "support/frame_info.h"

namespace narrowcast::tests {
namespace {

constexpr ncast_dtype all_dtypes[] = {NCAST_INT8,    NCAST_UINT8,    NCAST_INT32,       NCAST_UINT32,
                                      NCAST_INT64,   NCAST_UINT64,   NCAST_FLOAT16,     NCAST_FLOAT32,
                                      NCAST_FLOAT64, NCAST_BFLOAT16, NCAST_FLOAT8_E4M3, NCAST_FLOAT8_E5M2};

size_t block_bytes_of(ncast_dtype dtype) {
  const ValueType type = format::window::value_type(dtype);
  return type.value_bytes != 0 ? static_cast<size_t>(type.block_bytes()) : 4096;
}

// Values of a few kinds, one after the other, so that a frame holds blocks of different widths and raw ones.
Bytes make_values(ncast_dtype dtype, uint64_t elems, Random& random) {
  const ValueType type = format::window::value_type(dtype);
  Bytes values;
  const size_t bytes = elems * ncast_dtype_bytes(dtype);
  while (values.size() < bytes) {
    Bytes block(4096);
    if (type.value_bytes != 0) {
      block = make_block(type, random.below(static_cast<int>(pattern_names.size())), random);
    } else {
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(random.bits());
    }
    values.insert(values.end(), block.begin(), block.end());
  }
  values.resize(bytes);
  return values;
}

Bytes encode(const Bytes& values, ncast_dtype dtype, ncast_codec codec, uint32_t flags) {
  const uint64_t elems = values.size() / ncast_dtype_bytes(dtype);
  Bytes frame(ncast_bound(dtype, codec, elems));
  size_t wire_bytes = 0;
  REQUIRE(ncast_encode(values.data(), dtype, elems, codec, flags, frame.data(), frame.size(), &wire_bytes) == NCAST_OK);
  REQUIRE(wire_bytes <= frame.size());
  frame.resize(wire_bytes);
  return frame;
}

// Sizes around everything that matters: nothing, vectors, groups, blocks.
std::vector<uint64_t> interesting_sizes(ncast_dtype dtype) {
  const uint64_t block = block_bytes_of(dtype) / ncast_dtype_bytes(dtype);
  std::vector<uint64_t> sizes = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 127, 1000};
  for (uint64_t blocks = 1; blocks <= 4; ++blocks)
    for (const int64_t around : {-17, -1, 0, 1, 16}) sizes.push_back(blocks * block + static_cast<uint64_t>(around));
  return sizes;
}

struct Decoding {
  ncast_status status;
  Bytes values;
  bool operator==(const Decoding&) const = default;
};
Decoding decode(const Bytes& frame, size_t capacity, uint32_t flags, size_t from_offset = 0, size_t to_offset = 0) {
  const Exact from(frame, from_offset);
  Guarded values(capacity, to_offset);
  ncast_frame_info info = sized_frame_info();
  const ncast_status status = ncast_decode(from.data(), frame.size(), flags, values.data(), capacity, &info);
  REQUIRE(values.intact());
  if (status != NCAST_OK) return {status, {}};
  REQUIRE(values.untouched_after(info.raw_bytes));
  return {status, values.copy(info.raw_bytes)};
}

}  // namespace

TEST_CASE("a frame of any size and type gives its values back, wherever the buffers lie") {
  for (const ncast_dtype dtype : all_dtypes)
    for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_RAW}, ncast_codec{NCAST_CODEC_WINDOW}})
      for (const uint64_t elems : interesting_sizes(dtype)) {
        const uint64_t seed = elems * 31 + static_cast<uint64_t>(dtype);
        INFO(ncast_dtype_name(dtype), ", codec ", codec, ", ", elems, " values, seed ", seed);
        Random random(seed);
        const auto offset = [&] { return static_cast<size_t>(random.below(17)); };
        const Bytes values = make_values(dtype, elems, random);
        const uint32_t flags = static_cast<uint32_t>(random.below(4));
        const Bytes frame = encode(values, dtype, codec, flags);
        REQUIRE(encode(values, dtype, codec, flags | NCAST_REFERENCE) == frame);

        const Exact from(values, offset());
        Guarded to(ncast_bound(dtype, codec, elems), offset());
        size_t wire_bytes = 0;
        REQUIRE(ncast_encode(from.data(), dtype, elems, codec, flags, to.data(), to.size(), &wire_bytes) == NCAST_OK);
        REQUIRE(to.copy(wire_bytes) == frame);
        REQUIRE(to.intact());

        REQUIRE(decode(frame, values.size(), 0, offset(), offset()) == Decoding{NCAST_OK, values});
        REQUIRE(decode(frame, values.size() + 100, NCAST_REFERENCE, offset(), offset()) == Decoding{NCAST_OK, values});
      }
}

TEST_CASE("the header says what the frame holds") {
  for (const ncast_dtype dtype : all_dtypes)
    for (const uint64_t elems : {uint64_t{0}, uint64_t{5}, uint64_t{10000}}) {
      CAPTURE(elems);
      Random random(1);
      const Bytes values = make_values(dtype, elems, random);
      const ValueType type = format::window::value_type(dtype);
      const bool windowed = type.value_bytes != 0;
      const Bytes frame = encode(values, dtype, NCAST_CODEC_WINDOW, NCAST_MORE | NCAST_CHECKSUM);
      ncast_frame_info info = sized_frame_info();
      REQUIRE(ncast_inspect(frame.data(), NCAST_FRAME_HEADER_BYTES, &info) == NCAST_OK);
      CHECK(info.elems == elems);
      CHECK(info.raw_bytes == values.size());
      CHECK(info.wire_bytes == frame.size());
      CHECK(info.dtype == dtype);
      CHECK(info.codec == (windowed ? NCAST_CODEC_WINDOW : NCAST_CODEC_RAW));
      CHECK(info.flags == (NCAST_MORE | NCAST_CHECKSUM));
      CHECK(info.version == 1);
      CHECK(info.checksum != 0);
      CHECK(info.block_elems == (windowed ? static_cast<uint32_t>(type.block_elems()) : 0));
      CHECK(info.blocks == (windowed ? (elems + info.block_elems - 1) / info.block_elems : 0));
    }
}

TEST_CASE("encoding needs no byte more than the frame takes, and says so at every capacity below") {
  for (const ncast_dtype dtype : {NCAST_BFLOAT16, NCAST_FLOAT64, NCAST_FLOAT8_E4M3, NCAST_INT32})
    for (const uint64_t elems : {uint64_t{0}, uint64_t{3}, uint64_t{2048}, uint64_t{4096 + 5}}) {
      Random random(2);
      const Bytes values = make_values(dtype, elems, random);
      const Bytes frame = encode(values, dtype, NCAST_CODEC_WINDOW, 0);
      const size_t step = sanitized ? 97 : 1;
      for (size_t capacity = 0; capacity <= frame.size() + 20; capacity += capacity + 40 < frame.size() ? step : 1) {
        Guarded to(capacity, capacity % 16);
        size_t wire_bytes = 0;
        const ncast_status status =
            ncast_encode(values.data(), dtype, elems, NCAST_CODEC_WINDOW, 0, to.data(), capacity, &wire_bytes);
        INFO(ncast_dtype_name(dtype), ", ", elems, " values, capacity ", capacity, " of ", frame.size());
        REQUIRE(to.intact());
        REQUIRE(status == (capacity < frame.size() ? NCAST_TOO_SMALL : NCAST_OK));
        if (status == NCAST_OK) REQUIRE(to.copy(wire_bytes) == frame);
      }
    }
}

TEST_CASE("no frame exceeds the bound, and random bytes reach it") {
  Random random(3);
  for (const ncast_dtype dtype : all_dtypes) {
    const uint64_t elems = 3 * block_bytes_of(dtype) / ncast_dtype_bytes(dtype) + 3;
    Bytes values(elems * ncast_dtype_bytes(dtype));
    for (uint8_t& byte : values) byte = static_cast<uint8_t>(random.bits());
    const size_t bound = ncast_bound(dtype, NCAST_CODEC_WINDOW, elems);
    CHECK(encode(values, dtype, NCAST_CODEC_WINDOW, 0).size() <= bound);
    if (dtype != NCAST_FLOAT8_E4M3 && dtype != NCAST_FLOAT8_E5M2)
      CHECK(encode(values, dtype, NCAST_CODEC_WINDOW, 0).size() == bound);
  }
}

TEST_CASE("auto is no codec of frames, and the sentence says whose it is") {
  const float value = 1;
  uint8_t frame[256];
  size_t wire_bytes = 0;
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_AUTO, 1) == 0);
  CHECK(ncast_encode(&value, NCAST_FLOAT32, 1, NCAST_CODEC_AUTO, 0, frame, sizeof frame, &wire_bytes) ==
        NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) ==
        "ncast_encode: codec is auto, which only the calls of a communicator accept");
}

TEST_CASE("a decoder refuses a frame cut short anywhere") {
  for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_RAW}, ncast_codec{NCAST_CODEC_WINDOW}}) {
    Random random(4);
    const Bytes values = make_values(NCAST_BFLOAT16, 4100, random);
    const Bytes frame = encode(values, NCAST_BFLOAT16, codec, 0);
    for (size_t bytes = 0; bytes < frame.size(); bytes += bytes < 200 ? 1 : 61) {
      const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes));
      CAPTURE(bytes);
      REQUIRE(decode(cut, values.size(), 0).status == NCAST_CORRUPT);
    }
  }
}

TEST_CASE("values that do not fit are refused before anything is written") {
  Random random(5);
  const Bytes values = make_values(NCAST_BFLOAT16, 4100, random);
  const Bytes frame = encode(values, NCAST_BFLOAT16, NCAST_CODEC_WINDOW, NCAST_CHECKSUM);
  for (const size_t capacity : {size_t{0}, size_t{1}, size_t{4096}, values.size() - 1}) {
    Guarded to(capacity);
    ncast_frame_info info = sized_frame_info();
    CHECK(ncast_decode(frame.data(), frame.size(), 0, to.data(), capacity, &info) == NCAST_TOO_SMALL);
    CHECK(to.untouched_after(0));
    CHECK(info.raw_bytes == values.size());  // so that the caller can make room
  }
}

TEST_CASE("with a checksum, any flipped bit is found") {
  Random random(6);
  const Bytes values = make_values(NCAST_BFLOAT16, 2048 + 9, random);
  const Bytes frame = encode(values, NCAST_BFLOAT16, NCAST_CODEC_WINDOW, NCAST_CHECKSUM);
  for (size_t bit = 0; bit < frame.size() * 8; bit += bit < 64 * 8 ? 1 : 53) {
    Bytes flipped = frame;
    flipped[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    CAPTURE(bit);
    const ncast_status status = decode(flipped, values.size() + 4096, 0).status;
    REQUIRE((status == NCAST_CORRUPT || status == NCAST_TOO_SMALL));
  }
}

TEST_CASE("frames end to end are a stream: each says where the next begins, and whether there is one") {
  Random random(7);
  Bytes stream, values;
  for (const uint64_t elems : {uint64_t{3000}, uint64_t{1}, uint64_t{0}, uint64_t{5000}}) {
    const Bytes part = make_values(NCAST_FLOAT16, elems, random);
    const Bytes frame = encode(part, NCAST_FLOAT16, NCAST_CODEC_WINDOW, elems == 5000 ? 0 : uint32_t{NCAST_MORE});
    stream.insert(stream.end(), frame.begin(), frame.end());
    values.insert(values.end(), part.begin(), part.end());
  }
  Bytes back(values.size());
  size_t at = 0, filled = 0;
  ncast_frame_info info = sized_frame_info();
  do {
    REQUIRE(ncast_decode(stream.data() + at, stream.size() - at, 0, back.data() + filled, back.size() - filled,
                         &info) == NCAST_OK);
    at += info.wire_bytes;
    filled += info.raw_bytes;
  } while ((info.flags & NCAST_MORE) != 0);
  CHECK(at == stream.size());
  CHECK(back == values);
}

TEST_CASE("the block statistics count every block once and every value kept out of line") {
  for (const NamedType& named : window_types) {
    Random random(8);
    const uint64_t elems = 30 * static_cast<uint64_t>(named.type.block_elems()) + 5;
    const Bytes frame = encode(make_values(named.dtype, elems, random), named.dtype, NCAST_CODEC_WINDOW, 0);
    auto counters = block_counters(frame.data(), frame.size());
    CAPTURE(named.name);
    CHECK(blocks_counted(counters) == 31);
    CHECK(counters["raw_blocks"] >= 1);  // the short last block is raw
    CHECK(counters["escapes"] >= counters["far_escapes"]);
    CHECK(counters["escapes"] > 0);
  }
  const Bytes raw = encode(Bytes(64), NCAST_INT8, NCAST_CODEC_RAW, 0);
  uint64_t counter = 77;  // raw has none
  REQUIRE(ncast_inspect_blocks(raw.data(), raw.size(), &counter, 1) == NCAST_OK);
  CHECK(counter == 0);
}

TEST_CASE("what decodes can be inspected, and both decoders agree on damaged frames") {
  const int rounds = sanitized ? 300 : 3000;
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    Random random(static_cast<uint64_t>(round));
    const NamedType& named = window_types[static_cast<size_t>(round) % window_types.size()];
    const uint64_t elems = static_cast<uint64_t>(random.below(2 * named.type.block_elems() + 50));
    const Bytes values = make_values(named.dtype, elems, random);
    Bytes frame = encode(values, named.dtype, NCAST_CODEC_WINDOW, 0);
    for (int times = 1 + random.below(3); times > 0; --times) {
      const int part = random.below(3);
      const size_t bound = part == 0 ? 64 : part == 1 ? std::min<size_t>(frame.size(), 80) : frame.size();
      frame[static_cast<size_t>(random.below(static_cast<int>(bound)))] ^= static_cast<uint8_t>(1 << random.below(8));
    }
    INFO(named.name, ", seed ", round);
    const Decoding fast = decode(frame, values.size() + 64, 0);
    REQUIRE(decode(frame, values.size() + 64, NCAST_REFERENCE) == fast);
    if (fast.status != NCAST_OK) continue;
    ++accepted;
    ncast_frame_info info = sized_frame_info();
    REQUIRE(ncast_inspect(frame.data(), frame.size(), &info) == NCAST_OK);
    REQUIRE(ncast_inspect_blocks(frame.data(), frame.size(), nullptr, 0) == NCAST_OK);
  }
  CHECK(accepted > rounds / 20);
  CHECK(accepted < rounds);
}

TEST_CASE("arguments out of range are refused with a sentence that names the function") {
  Bytes buffer(4096);
  size_t wire_bytes = 0;
  ncast_frame_info info = sized_frame_info();
  const auto says = [](const char* part) { return std::string(ncast_last_error()).find(part) != std::string::npos; };
  const auto encode_with = [&](const void* values, uint64_t elems, uint32_t flags, void* frame, size_t* bytes) {
    return ncast_encode(values, NCAST_FLOAT32, elems, NCAST_CODEC_WINDOW, flags, frame, buffer.size(), bytes);
  };
  CHECK(encode_with(nullptr, 1, 0, buffer.data(), &wire_bytes) == NCAST_INVALID_ARGUMENT);
  CHECK(says("ncast_encode: values"));
  CHECK(encode_with(nullptr, 0, 0, buffer.data(), &wire_bytes) == NCAST_OK);
  CHECK(encode_with(buffer.data(), 1, 0, nullptr, &wire_bytes) == NCAST_INVALID_ARGUMENT);
  CHECK(encode_with(buffer.data(), 1, 0, buffer.data() + 64, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(encode_with(buffer.data(), 1, 8, buffer.data() + 64, &wire_bytes) == NCAST_INVALID_ARGUMENT);
  CHECK(encode_with(buffer.data(), (format::max_raw_bytes / 4) + 1, 0, buffer.data(), &wire_bytes) ==
        NCAST_INVALID_ARGUMENT);
  CHECK(ncast_inspect(nullptr, 64, &info) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_inspect(buffer.data(), 64, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_inspect_blocks(buffer.data(), 64, nullptr, 1) == NCAST_INVALID_ARGUMENT);
  Bytes zeros(64);
  CHECK(ncast_decode(zeros.data(), 64, 0, buffer.data(), 64, nullptr) == NCAST_CORRUPT);
  CHECK(says("magic"));
  CHECK(ncast_decode(buffer.data(), 64, NCAST_CHECKSUM, buffer.data(), 64, nullptr) == NCAST_INVALID_ARGUMENT);
  // 12 fits the enum's bits but is no value type.
  const auto no_type = static_cast<ncast_dtype>(12);
  CHECK(ncast_encode(buffer.data(), no_type, 1, NCAST_CODEC_RAW, 0, buffer.data() + 64, 128, &wire_bytes) ==
        NCAST_INVALID_ARGUMENT);
  CHECK(says("dtype 12"));
  CHECK(ncast_bound(no_type, NCAST_CODEC_RAW, 1) == 0);
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW, format::max_raw_bytes / 4) > 0);
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW, format::max_raw_bytes / 4 + 1) == 0);
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW, ~uint64_t{0}) == 0);
}

}  // namespace narrowcast::tests
