// Frames through the C API.
#include <string>

#include "codec/frame/layout.h"
#include "doctest/doctest.h"
#include "every_codec.h"
#include "support/values.h"

namespace narrowcast::tests {
namespace {

Bytes encode(const Bytes& values, ncast_dtype dtype, ncast_codec codec, uint32_t flags) {
  const uint64_t elems = values.size() / ncast_dtype_bytes(dtype);
  Bytes frame(ncast_bound(dtype, codec, elems));
  size_t wire_bytes = 0;
  REQUIRE(ncast_encode(values.data(), dtype, elems, codec, encoder_flags(flags), frame.data(), frame.size(),
                       &wire_bytes) == NCAST_OK);
  REQUIRE(wire_bytes <= frame.size());
  frame.resize(wire_bytes);
  return frame;
}

// Values per block of a type; of types that the codec stores raw, those of raw.
uint64_t block_elems_of(const ncast_codec_info& info, ncast_dtype dtype) {
  const ncast_codec_type* const type = type_of(info, dtype);
  return (type != nullptr ? type->block_bytes : 4096) / ncast_dtype_bytes(dtype);
}

}  // namespace

TEST_CASE("the header says what the frame holds") {
  for_each_codec([](const ncast_codec_info& codec_info, ncast_codec codec) {
    for (const ncast_dtype dtype : testing::all_dtypes)
      for (const uint64_t elems : {uint64_t{0}, uint64_t{5}, uint64_t{10000}}) {
        INFO(text_of(codec), ", ", name_of(dtype), ", ", elems, " values");
        Random random(1);
        const Bytes values = make_values(dtype, elems, random);
        const bool coded = type_of(codec_info, dtype) != nullptr;
        const bool has_lengths = coded && codec_info.fixed_payload == 0;
        const Bytes frame = encode(values, dtype, codec, NCAST_MORE | NCAST_CHECKSUM);
        ncast_frame_info info = sized_frame_info();
        REQUIRE(ncast_inspect(frame.data(), NCAST_FRAME_HEADER_BYTES, &info) == NCAST_OK);
        CHECK(info.elems == elems);
        CHECK(info.raw_bytes == values.size());
        CHECK(info.wire_bytes == frame.size());
        CHECK(info.dtype == dtype);
        CHECK(text_of(info.codec) == (coded ? text_of(codec) : "raw"));
        CHECK(info.flags == (NCAST_MORE | NCAST_CHECKSUM));
        CHECK(info.version == 1);
        CHECK(info.checksum != 0);
        CHECK(info.block_elems == (has_lengths ? block_elems_of(codec_info, dtype) : 0));
        CHECK(info.blocks == (has_lengths ? (elems + info.block_elems - 1) / info.block_elems : 0));
      }
  });
}

TEST_CASE("encoding needs no byte more than the frame takes, and says so at every capacity below") {
  for_each_codec([](const ncast_codec_info& info, ncast_codec codec) {
    for (const ncast_dtype dtype : {NCAST_FLOAT32, NCAST_BFLOAT16, NCAST_FLOAT64, NCAST_FLOAT8_E4M3, NCAST_INT32})
      for (const uint64_t elems : {uint64_t{0}, uint64_t{3}, uint64_t{2048}, uint64_t{4096 + 5}}) {
        Random random(2);
        const Bytes values = make_values(dtype, elems, random);
        const Bytes frame = encode(values, dtype, codec, 0);
        const size_t step = sanitized || info.fixed_payload != 0 ? 97 : 1;
        for (size_t capacity = 0; capacity <= frame.size() + 20; capacity += capacity + 40 < frame.size() ? step : 1) {
          Guarded to(capacity, capacity % 16);
          size_t wire_bytes = 0;
          const ncast_status status =
              ncast_encode(values.data(), dtype, elems, codec, NCAST_NO_CHECKSUM, to.data(), capacity, &wire_bytes);
          INFO(text_of(codec), ", ", name_of(dtype), ", ", elems, " values, capacity ", capacity, " of ", frame.size());
          REQUIRE(to.intact());
          REQUIRE(status == (capacity < frame.size() ? NCAST_TOO_SMALL : NCAST_OK));
          if (status == NCAST_OK) REQUIRE(to.copy(wire_bytes) == frame);
        }
      }
  });
}

TEST_CASE("no frame exceeds the bound, and random bytes reach it") {
  for_each_codec([](const ncast_codec_info& info, ncast_codec codec) {
    Random random(3);
    for (const ncast_dtype dtype : testing::all_dtypes) {
      const uint64_t elems = 3 * block_elems_of(info, dtype) + 3;
      Bytes values(elems * ncast_dtype_bytes(dtype));
      for (uint8_t& byte : values) byte = static_cast<uint8_t>(random.bits());
      INFO(text_of(codec), ", ", name_of(dtype));
      const size_t bound = ncast_bound(dtype, codec, elems), bytes = encode(values, dtype, codec, 0).size();
      CHECK(bytes <= bound);
      // Window shrinks most bytes of these types, and a large error allows `abs` to do so.
      if ((codec & 0xff) == NCAST_CODEC_ABS && codec != NCAST_CODEC_ABS) continue;
      if (codec != NCAST_CODEC_WINDOW || (dtype != NCAST_FLOAT8_E4M3 && dtype != NCAST_FLOAT8_E5M2))
        CHECK(bytes == bound);
    }
  });
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
  for_each_codec([](const ncast_codec_info&, ncast_codec codec) {
    Random random(4);
    const Bytes values = make_values(NCAST_BFLOAT16, 4100, random);
    const Bytes frame = encode(values, NCAST_BFLOAT16, codec, 0);
    for (size_t bytes = 0; bytes < frame.size(); bytes += bytes < 200 ? 1 : 61) {
      const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes));
      INFO(text_of(codec), ", ", bytes, " bytes");
      REQUIRE(decode(cut, values.size(), 0).status == NCAST_CORRUPT);
    }
  });
}

TEST_CASE("values that do not fit are refused before anything is written") {
  for_each_codec([](const ncast_codec_info&, ncast_codec codec) {
    Random random(5);
    const Bytes values = make_values(NCAST_BFLOAT16, 4100, random);
    const Bytes frame = encode(values, NCAST_BFLOAT16, codec, NCAST_CHECKSUM);
    for (const size_t capacity : {size_t{0}, size_t{1}, size_t{4096}, values.size() - 1}) {
      INFO(text_of(codec), ", capacity ", capacity);
      Guarded to(capacity);
      ncast_frame_info info = sized_frame_info();
      CHECK(ncast_decode(frame.data(), frame.size(), 0, to.data(), capacity, &info) == NCAST_TOO_SMALL);
      CHECK(to.untouched_after(0));
      CHECK(info.raw_bytes == values.size());  // so that the caller can make room
    }
  });
}

TEST_CASE("with a checksum, any flipped bit is found") {
  for_each_codec([](const ncast_codec_info&, ncast_codec codec) {
    Random random(6);
    const Bytes values = make_values(NCAST_BFLOAT16, 2048 + 9, random);
    const Bytes frame = encode(values, NCAST_BFLOAT16, codec, NCAST_CHECKSUM);
    for (size_t bit = 0; bit < frame.size() * 8; bit += bit < 64 * 8 ? 1 : 53) {
      Bytes flipped = frame;
      flipped[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      INFO(text_of(codec), ", bit ", bit);
      const ncast_status status = decode(flipped, values.size() + 4096, 0).status;
      REQUIRE((status == NCAST_CORRUPT || status == NCAST_TOO_SMALL));
    }
  });
}

TEST_CASE("frames end to end are a stream: each says where the next begins, and whether there is one") {
  for_each_codec([](const ncast_codec_info&, ncast_codec codec) {
    Random random(7);
    Bytes stream, values;
    for (const uint64_t elems : {uint64_t{3000}, uint64_t{1}, uint64_t{0}, uint64_t{5000}}) {
      const Bytes part = make_values(NCAST_FLOAT32, elems, random);
      const Bytes frame = encode(part, NCAST_FLOAT32, codec, elems == 5000 ? 0 : uint32_t{NCAST_MORE});
      const Bytes decoded = decode(frame, part.size(), 0).values;
      stream.insert(stream.end(), frame.begin(), frame.end());
      values.insert(values.end(), decoded.begin(), decoded.end());
    }
    CAPTURE(text_of(codec));
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
  });
}

TEST_CASE("the block statistics of window count every block once and every value kept out of line") {
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
  for_each_codec([](const ncast_codec_info& codec_info, ncast_codec codec) {
    const int rounds = (sanitized ? 300 : 3000) / static_cast<int>(variants_of(codec_info).size());
    int accepted = 0;
    for (int round = 0; round < rounds; ++round) {
      Random random(static_cast<uint64_t>(round));
      const ncast_codec_type& type = codec_info.types[static_cast<uint32_t>(round) % codec_info.type_count];
      const auto block_elems = static_cast<int>(type.block_bytes / ncast_dtype_bytes(type.dtype));
      const Bytes values = make_values(type.dtype, static_cast<uint64_t>(random.below(2 * block_elems + 50)), random);
      Bytes frame = encode(values, type.dtype, codec, 0);
      for (int times = 1 + random.below(3); times > 0; --times) {
        const int part = random.below(3);
        const size_t bound = part == 0 ? 64 : part == 1 ? std::min<size_t>(frame.size(), 80) : frame.size();
        frame[static_cast<size_t>(random.below(static_cast<int>(bound)))] ^= static_cast<uint8_t>(1 << random.below(8));
      }
      INFO(text_of(codec), ", ", name_of(type.dtype), ", seed ", round);
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
  });
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
  CHECK(encode_with(buffer.data(), 1, 16, buffer.data() + 64, &wire_bytes) == NCAST_INVALID_ARGUMENT);
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
