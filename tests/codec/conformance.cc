// Every codec of the table, those of the tests included, in frames of every value type.
#include <cmath>
#include <string>

#include "doctest/doctest.h"
#include "every_codec.h"

namespace narrowcast::tests {
namespace {

// Value `index` of a floating-point type.
double value_of(ncast_dtype dtype, const Bytes& values, size_t index) {
  const ValueType type = format::window::value_type(dtype);
  uint64_t bits = 0;
  const auto bytes = static_cast<size_t>(type.value_bytes);
  std::memcpy(&bits, values.data() + index * bytes, bytes);
  const int mantissa_bits = 8 * type.value_bytes - 1 - type.exponent_bits;
  const uint64_t exponent_mask = (uint64_t{1} << type.exponent_bits) - 1;
  const uint64_t mantissa_mask = (uint64_t{1} << mantissa_bits) - 1;
  const auto exponent = static_cast<int>(bits >> mantissa_bits & exponent_mask);
  const auto mantissa = static_cast<double>(bits & mantissa_mask);
  const double sign = (bits >> (8 * type.value_bytes - 1) & 1) != 0 ? -1 : 1;
  const int bias = static_cast<int>(exponent_mask >> 1);
  const bool top = exponent == static_cast<int>(exponent_mask);
  if (dtype == NCAST_FLOAT8_E4M3 ? top && (bits & mantissa_mask) == mantissa_mask : top && mantissa != 0) return NAN;
  if (top && dtype != NCAST_FLOAT8_E4M3) return sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + static_cast<double>(mantissa_mask + 1), exponent - bias - mantissa_bits);
}

// Whether every block of `decoded` keeps the bound that its codec states, NaN and infinity included.
bool within_bound(ncast_codec codec, const ncast_codec_type& type, const Bytes& values, const Bytes& decoded) {
  const size_t value_bytes = ncast_dtype_bytes(type.dtype), elems = values.size() / value_bytes;
  const size_t block_elems = type.block_bytes / value_bytes;
  for (size_t first = 0; first < elems; first += block_elems) {
    const size_t end = std::min(first + block_elems, elems);
    double largest = 0;
    for (size_t i = first; i < end; ++i)
      if (const double value = value_of(type.dtype, values, i); std::isfinite(value))
        largest = std::max(largest, std::abs(value));
    const double bound = ncast_codec_error_bound(codec, type.dtype, largest);
    for (size_t i = first; i < end; ++i) {
      const double value = value_of(type.dtype, values, i), result = value_of(type.dtype, decoded, i);
      if (std::isnan(value)   ? !std::isnan(result)
          : std::isinf(value) ? result != value
                              : !(std::abs(result - value) <= bound))
        return false;
    }
  }
  return true;
}

Bytes encode(const Bytes& values, ncast_dtype dtype, ncast_codec codec, uint32_t flags, size_t from_offset,
             size_t to_offset) {
  const uint64_t elems = values.size() / ncast_dtype_bytes(dtype);
  const Exact from(values, from_offset);
  Guarded frame(ncast_bound(dtype, codec, elems), to_offset);
  size_t wire_bytes = 0;
  REQUIRE(ncast_encode(from.data(), dtype, elems, codec, flags, frame.data(), frame.size(), &wire_bytes) == NCAST_OK);
  REQUIRE(frame.untouched_after(wire_bytes));
  return frame.copy(wire_bytes);
}

struct Decoding {
  ncast_status status;
  Bytes values;
  bool operator==(const Decoding&) const = default;
};
Decoding decode(const Bytes& frame, size_t capacity, uint32_t flags, size_t from_offset, size_t to_offset) {
  const Exact from(frame, from_offset);
  Guarded values(capacity, to_offset);
  ncast_frame_info info = sized_frame_info();
  const ncast_status status = ncast_decode(from.data(), frame.size(), flags, values.data(), capacity, &info);
  REQUIRE(values.intact());
  if (status != NCAST_OK) return {status, {}};
  REQUIRE(values.untouched_after(info.raw_bytes));
  return {status, values.copy(info.raw_bytes)};
}

std::vector<uint64_t> sizes_around_blocks(ncast_dtype dtype, uint32_t block_bytes) {
  const uint64_t block = block_bytes / ncast_dtype_bytes(dtype);
  return {0, 1, 7, 16, 1000, block - 1, block, block + 1, 3 * block + 17};
}

}  // namespace

TEST_CASE("every codec keeps its promise in frames of every type and size") {
  for_each_codec([](const ncast_codec_info& info, ncast_codec codec) {
    for (int number = 0; number <= last_dtype; ++number) {
      const auto dtype = static_cast<ncast_dtype>(number);
      const ncast_codec_type* const type = type_of(info, dtype);
      for (const uint64_t elems : sizes_around_blocks(dtype, type != nullptr ? type->block_bytes : 4096)) {
        const std::string name = text_of(codec);
        INFO(name, ", ", ncast_dtype_name(dtype), ", ", elems, " values");
        Random random(elems + static_cast<uint64_t>(number));
        const auto offset = [&] { return static_cast<size_t>(random.below(17)); };
        const Bytes values = make_values(dtype, elems, random);
        const Bytes frame = encode(values, dtype, codec, 0, offset(), offset());
        REQUIRE(encode(values, dtype, codec, NCAST_REFERENCE, offset(), offset()) == frame);

        ncast_frame_info header = sized_frame_info();
        REQUIRE(ncast_inspect(frame.data(), frame.size(), &header) == NCAST_OK);
        REQUIRE(header.elems == elems);
        REQUIRE(header.wire_bytes == frame.size());
        REQUIRE(text_of(header.codec) == (type != nullptr ? name : "raw"));
        if (info.fixed_payload != 0) REQUIRE(frame.size() == ncast_bound(dtype, codec, elems));
        REQUIRE(ncast_inspect_blocks(frame.data(), frame.size(), nullptr, 0) == NCAST_OK);

        const Decoding decoded = decode(frame, values.size(), 0, offset(), offset());
        REQUIRE(decoded.status == NCAST_OK);
        REQUIRE(decode(frame, values.size() + 50, NCAST_REFERENCE, offset(), offset()) == decoded);
        if (info.exact != 0 || type == nullptr)
          REQUIRE(decoded.values == values);
        else
          REQUIRE(within_bound(codec, *type, values, decoded.values));
      }
    }
  });
}

TEST_CASE("both decoders of every codec agree on damaged frames") {
  const int rounds = sanitized ? 40 : 400;
  for_each_codec([&](const ncast_codec_info& info, ncast_codec codec) {
    for (int round = 0; round < rounds; ++round) {
      const ncast_codec_type& type = info.types[static_cast<uint32_t>(round) % info.type_count];
      Random random(static_cast<uint64_t>(round));
      const uint64_t elems = type.block_bytes / ncast_dtype_bytes(type.dtype) * 2 + 5;
      const Bytes values = make_values(type.dtype, elems, random);
      Bytes frame = encode(values, type.dtype, codec, 0, 0, 0);
      for (int times = 1 + random.below(3); times > 0; --times) {
        const size_t bound = random.chance(0.3) ? 64 : frame.size();
        frame[static_cast<size_t>(random.below(static_cast<int>(bound)))] ^= static_cast<uint8_t>(1 << random.below(8));
      }
      INFO(text_of(codec), ", ", ncast_dtype_name(type.dtype), ", seed ", round);
      REQUIRE(decode(frame, values.size(), NCAST_REFERENCE, 1, 3) == decode(frame, values.size(), 0, 0, 0));
    }
  });
}

TEST_CASE("a frame whose header has other parameters than the codec allows is corrupt") {
  for_each_codec([](const ncast_codec_info& info, ncast_codec codec) {
    const ncast_dtype dtype = info.types[0].dtype;
    Random random(1);
    const Bytes values = make_values(dtype, 10, random);
    const Bytes frame = encode(values, dtype, codec, 0, 0, 0);
    for (uint32_t i = 0; i < 4; ++i) {
      CAPTURE(i);
      const bool known = i < info.parameter_count;
      std::vector<uint32_t> wrong = {65535};
      if (known) wrong = {0, info.parameters[i].most + 1u};
      for (const uint32_t value : wrong) {
        if (value > 65535 || (known && value >= info.parameters[i].least && value <= info.parameters[i].most)) continue;
        Bytes changed = frame;
        const auto word = static_cast<uint16_t>(value);
        std::memcpy(changed.data() + 40 + 2 * i, &word, 2);
        REQUIRE(decode(changed, values.size(), 0, 0, 0).status == NCAST_CORRUPT);
      }
    }
  });
}

TEST_CASE("the text of every codec parses to the same codec") {
  for_each_codec([](const ncast_codec_info&, ncast_codec codec) {
    const std::string text = text_of(codec);
    CAPTURE(text);
    ncast_codec parsed = 0;
    REQUIRE(ncast_codec_parse(text.c_str(), &parsed) == NCAST_OK);
    CHECK(text_of(parsed) == text);
    CHECK(ncast_bound(NCAST_FLOAT32, parsed, 5000) == ncast_bound(NCAST_FLOAT32, codec, 5000));
  });
  ncast_codec codec = 0;
  CHECK(ncast_codec_parse("auto", &codec) == NCAST_OK);
  CHECK(codec == NCAST_CODEC_AUTO);
}

TEST_CASE("text that names no codec is refused with what is known") {
  const auto refused = [](const char* text, const char* part) {
    ncast_codec codec = 0;
    CAPTURE(text);
    CHECK(ncast_codec_parse(text, &codec) == NCAST_INVALID_ARGUMENT);
    CHECK(std::string(ncast_last_error()).find(part) != std::string::npos);
  };
  refused("zip", "'zip' is not a codec (known: auto, raw, window");
  refused("", "'' is not a codec");
  refused("window:", "'' is not key=value");
  refused("window:width=3", "it has no parameter 'width'");
  refused("raw,window", "'raw,window' is not a codec");
}

TEST_CASE("a number that is no codec, has reserved bits or parameters that the codec lacks is refused") {
  CHECK(ncast_bound(NCAST_FLOAT32, 77, 1) == 0);
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW | 0x100, 1) == 0);
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW | ncast_codec{1} << 16, 1) == 0);
  CHECK(std::string(ncast_last_error()) == "ncast_bound: codec window has 0 parameters, but parameter 0 is 1");
  char text[8];
  CHECK(ncast_codec_format(77, text, sizeof text) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_codec_format(NCAST_CODEC_WINDOW, text, 6) == NCAST_TOO_SMALL);
  CHECK(ncast_codec_format(NCAST_CODEC_WINDOW, text, 7) == NCAST_OK);
  CHECK(std::string(text) == "window");
}

}  // namespace narrowcast::tests
