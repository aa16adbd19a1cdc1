// Decodes arbitrary bytes as one block of `window`, `dense`, `abs` or `rate` and checks that all decoders agree.
// Without a frame, because its checks would reject most inputs.
//   byte 0: value type and codec; byte 1: if odd, the escape count in the header word of `window` is corrected; of
//   `rate` the bits; then the payload
#include "codec/dense/block.h"

#include <cstring>
#include <vector>

#include "check.h"
#include "codec/absolute/block.h"
#include "codec/rate/block.h"
#include "codec/rate/format.h"
#include "codec/window/vectorized.h"

namespace {

using namespace narrowcast;
using codec::window::ValueType;

constexpr ValueType types[] = {codec::window::bfloat16, codec::window::float16,     codec::window::float32,
                               codec::window::float64,  codec::window::float8_e4m3, codec::window::float8_e5m2};

// Sets the number of escapes in the header word to that of the codes. The fuzzer would hardly find it by itself.
void correct_escape_count(const ValueType& type, std::vector<uint8_t>& payload) {
  codec::window::PayloadHeader header;
  if (!codec::window::read_payload_header(type, payload.data(), payload.size(), &header)) return;
  const int escape_code = (1 << header.width) - 1, whole = 8 / header.width, spare = 8 % header.width;
  int escapes = 0;
  for (int group = 0; group < type.groups(); ++group)
    for (int at = 0; at < codec::window::row_bytes; ++at) {
      uint32_t leftover = 0;
      for (int row = 0; row < header.width; ++row) {
        const int byte = payload[static_cast<size_t>(header.stored.code_offset() +
                                                     (group * header.width + row) * codec::window::row_bytes + at)];
        for (int i = 0; i < whole; ++i) escapes += (byte >> i * header.width & escape_code) == escape_code;
        leftover |= static_cast<uint32_t>(byte >> whole * header.width) << row * spare;
      }
      for (int i = 0; i < 8 - whole * header.width; ++i)
        escapes += static_cast<int>(leftover >> i * header.width & static_cast<uint32_t>(escape_code)) == escape_code;
    }
  uint32_t word;
  std::memcpy(&word, payload.data() + payload.size() - 4, 4);
  word &= ~(codec::window::escapes_mask << codec::window::escapes_shift);
  word |= static_cast<uint32_t>(escapes) << codec::window::escapes_shift;
  std::memcpy(payload.data() + payload.size() - 4, &word, 4);
}

void check_dense(const codec::dense::ValueType& type, std::vector<uint8_t> payload) {
  namespace dense = codec::dense;
  const auto block_bytes = static_cast<size_t>(type.block_bytes());
  if (payload.size() > block_bytes) payload.resize(block_bytes);
  payload.shrink_to_fit();
  std::vector<uint8_t> expected(block_bytes), values(block_bytes);
  const bool ok = dense::reference.decode(type, payload.data(), payload.size(), expected.data());
  FUZZ_CHECK(dense::fast.decode(type, payload.data(), payload.size(), values.data()) == ok);
  FUZZ_CHECK(!ok || values == expected);
  if (!ok) return;

  std::vector<uint8_t> again(block_bytes), by_reference(block_bytes);
  again.resize(dense::fast.encode(type, expected.data(), again.data()));
  by_reference.resize(dense::reference.encode(type, expected.data(), by_reference.data()));
  FUZZ_CHECK(again == by_reference);
  FUZZ_CHECK(dense::fast.decode(type, again.data(), again.size(), values.data()));
  FUZZ_CHECK(values == expected);
}

constexpr codec::dense::ValueType dense_types[] = {codec::dense::bfloat16,    codec::dense::float16,
                                                   codec::dense::float32,     codec::dense::float64,
                                                   codec::dense::float8_e4m3, codec::dense::float8_e5m2};

// Both paths of a codec for fields.
void check_field(const codec::BlockCoder& reference, const codec::BlockCoder& fast, const codec::BlockType& type,
                 std::vector<uint8_t> payload) {
  if (payload.size() > type.block_bytes) payload.resize(type.block_bytes);
  payload.shrink_to_fit();
  std::vector<uint8_t> expected(type.block_bytes), values(type.block_bytes);
  const bool ok = reference.decode(type, payload.data(), payload.size(), expected.data());
  FUZZ_CHECK(fast.decode(type, payload.data(), payload.size(), values.data()) == ok);
  FUZZ_CHECK(!ok || values == expected);
  if (!ok) return;

  std::vector<uint8_t> again(type.block_bytes), by_reference(type.block_bytes);
  again.resize(fast.encode(type, {}, expected.data(), again.data()));
  by_reference.resize(reference.encode(type, {}, expected.data(), by_reference.data()));
  FUZZ_CHECK(again == by_reference);
  FUZZ_CHECK(fast.decode(type, again.data(), again.size(), values.data()));
}

constexpr size_t field_blocks = 4;  // abs and rate, float32 and float64
void check_field(size_t number, uint8_t parameter, std::vector<uint8_t> payload) {
  const bool is_single = number % 2 == 0;
  const ncast_dtype dtype = is_single ? NCAST_FLOAT32 : NCAST_FLOAT64;
  if (number < 2) {
    constexpr ncast_codec half = NCAST_CODEC_ABS | ncast_codec{0x3f000000} << 16;  // bound=0.5
    return check_field(codec::absolute::reference, codec::absolute::fast, {dtype, is_single ? 4096u : 8192u, half},
                       std::move(payload));
  }
  const ncast_codec codec = NCAST_CODEC_RATE | (ncast_codec{8} + parameter % 24) << 16;
  payload.resize(codec::rate::Rate(codec).payload_bytes(codec::rate::value_type(dtype).quads()));
  check_field(codec::rate::reference, codec::rate::fast, {dtype, 4096, codec}, std::move(payload));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2) return 0;
  const size_t number = data[0] % (2 * std::size(types) + field_blocks);
  if (number >= 2 * std::size(types)) {
    check_field(number - 2 * std::size(types), data[1], std::vector<uint8_t>(data + 2, data + bytes));
    return 0;
  }
  if (number >= std::size(types)) {
    check_dense(dense_types[number - std::size(types)], std::vector<uint8_t>(data + 2, data + bytes));
    return 0;
  }
  const ValueType& type = types[number];
  const auto block_bytes = static_cast<size_t>(type.block_bytes());
  std::vector<uint8_t> payload(data + 2, data + bytes);
  if (payload.size() > block_bytes) payload.resize(block_bytes);
  if (data[1] % 2 != 0) correct_escape_count(type, payload);
  payload.shrink_to_fit();

  std::vector<uint8_t> expected(block_bytes);
  const bool ok = codec::window::reference.decode(type, payload.data(), payload.size(), expected.data());
  for (const auto& path : codec::window::vector_paths()) {
    std::vector<uint8_t> values(block_bytes);
    FUZZ_CHECK(path.coder.decode(type, payload.data(), payload.size(), values.data()) == ok);
    FUZZ_CHECK(!ok || values == expected);
  }
  if (!ok) return 0;

  // Encoding the decoded values yields a valid payload that is not larger than raw.
  std::vector<uint8_t> again(block_bytes), back(block_bytes);
  const size_t again_bytes = codec::window::vectorized.encode(type, expected.data(), again.data());
  FUZZ_CHECK(again_bytes <= block_bytes);
  FUZZ_CHECK(codec::window::vectorized.decode(type, again.data(), again_bytes, back.data()));
  FUZZ_CHECK(back == expected);
  return 0;
}
