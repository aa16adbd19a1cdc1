// Tests the device functions of `window`, called from kernels of this test, against reference.cc.
#include <vector>

#include "codec/window/block.h"
#include "codec/window/kernel.cuh"
#include "doctest/doctest.h"
#include "patterns.h"
#include "support/device_array.h"

namespace narrowcast::tests {
namespace {

using codec::window::value_type;

template <ncast_dtype Dtype>
struct alignas(16) Shared {
  using Block = codec::window::Block<value_type(Dtype)>;
  char values[Block::values_bytes];
  char payload[Block::values_bytes];
  typename Block::Scratch scratch;
};

// Each warp encodes one block and stores its payload and length.
template <ncast_dtype Dtype>
__global__ void encode_kernel(const char* values, char* payloads, uint32_t* lengths) {
  using Block = codec::window::Block<value_type(Dtype)>;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<Shared<Dtype>*>(memory);
  const int lane = device::lane_id();
  const size_t at = size_t{blockIdx.x} * Block::values_bytes;
  for (uint32_t i = lane; i < Block::values_bytes; i += 32) shared.values[i] = values[at + i];
  __syncwarp();
  const uint32_t bytes = Block::encode(shared.values, shared.payload, shared.scratch, lane);
  __syncwarp();
  const char* payload = bytes == Block::values_bytes ? shared.values : shared.payload;
  for (uint32_t i = lane; i < bytes; i += 32) payloads[at + i] = payload[i];
  if (lane == 0) lengths[blockIdx.x] = bytes;
}

// Each warp decodes one payload with any content. Stores the values, and a verdict: bit 0 if decode() succeeded, bit 1
// if the payload, which follows the values in shared memory, is unchanged.
template <ncast_dtype Dtype>
__global__ void decode_kernel(const char* payloads, const uint32_t* lengths, char* values, uint32_t* verdicts) {
  using Block = codec::window::Block<value_type(Dtype)>;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<Shared<Dtype>*>(memory);
  const int lane = device::lane_id();
  const size_t at = size_t{blockIdx.x} * Block::values_bytes;
  const uint32_t bytes = lengths[blockIdx.x];
  for (uint32_t i = lane; i < bytes; i += 32) shared.payload[i] = payloads[at + i];
  __syncwarp();
  const bool decoded = Block::decode(shared.payload, bytes, shared.values, shared.scratch, lane);
  __syncwarp();
  bool untouched = true;
  for (uint32_t i = lane; i < bytes; i += 32) untouched = untouched && shared.payload[i] == payloads[at + i];
  untouched = __all_sync(device::all_lanes, untouched);
  for (uint32_t i = lane; i < Block::values_bytes; i += 32) values[at + i] = shared.values[i];
  if (lane == 0) verdicts[blockIdx.x] = (decoded ? 1 : 0) | (untouched ? 2 : 0);
}

Bytes make_blocks(const ValueType& type, int count, Random& random) {
  Bytes all;
  for (int i = 0; i < count; ++i) {
    const Bytes block = make_block(type, i % static_cast<int>(pattern_names.size()), random);
    all.insert(all.end(), block.begin(), block.end());
  }
  return all;
}

template <ncast_dtype Dtype>
size_t raise_shared_limit() {
  const auto bytes = static_cast<int>(sizeof(Shared<Dtype>));
  REQUIRE_CUDA(cudaFuncSetAttribute(encode_kernel<Dtype>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  REQUIRE_CUDA(cudaFuncSetAttribute(decode_kernel<Dtype>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  return sizeof(Shared<Dtype>);
}

// Encodes the blocks with the reference. The payloads are stored at a stride of one block.
void encode_by_reference(const ValueType& type, const Bytes& values, Bytes& payloads, std::vector<uint32_t>& lengths) {
  payloads.assign(values.size(), 0);
  for (size_t block = 0; block < lengths.size(); ++block) {
    const size_t at = block * static_cast<size_t>(type.block_bytes());
    lengths[block] = static_cast<uint32_t>(codec::window::reference.encode(type, &values[at], &payloads[at]));
  }
}

template <ncast_dtype Dtype>
void check_encoding(Random& random) {
  constexpr ValueType type = value_type(Dtype);
  const size_t shared = raise_shared_limit<Dtype>();
  const Bytes values = make_blocks(type, 64, random);
  Bytes expected;
  std::vector<uint32_t> expected_lengths(64);
  encode_by_reference(type, values, expected, expected_lengths);

  const DeviceArray<uint8_t> in(values), out(Bytes(values.size(), 0xa5));
  const DeviceArray<uint32_t> lengths(std::vector<uint32_t>(64, 0));
  encode_kernel<Dtype><<<64, 32, shared>>>(reinterpret_cast<const char*>(in.data()),
                                           reinterpret_cast<char*>(out.data()), lengths.data());
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(lengths.read() == expected_lengths);
  const Bytes payloads = out.read();
  for (size_t block = 0; block < 64; ++block) {
    const auto at = static_cast<std::ptrdiff_t>(block * static_cast<size_t>(type.block_bytes()));
    CAPTURE(pattern_names[block % pattern_names.size()]);
    CHECK(std::equal(payloads.begin() + at, payloads.begin() + at + expected_lengths[block], expected.begin() + at));
  }
}

// Decodes payloads after applying `damage` (0: none) and compares the verdict and the values with the reference's.
template <ncast_dtype Dtype>
void check_decoding(Random& random, int damage) {
  constexpr ValueType type = value_type(Dtype);
  const size_t shared = raise_shared_limit<Dtype>();
  const auto stride = static_cast<size_t>(type.block_bytes());
  const Bytes values = make_blocks(type, 96, random);
  Bytes payloads;
  std::vector<uint32_t> lengths(96);
  encode_by_reference(type, values, payloads, lengths);
  for (size_t block = 0; block < lengths.size(); ++block) {
    uint8_t* payload = &payloads[block * stride];
    if (lengths[block] == stride)
      lengths[block] -= 16;  // the decoder is not called for raw blocks: shorten it to a (corrupt) payload
    if (damage == 1)
      payload[random.below(static_cast<int>(lengths[block]))] ^= static_cast<uint8_t>(1 << random.below(8));
    if (damage == 2)
      payload[lengths[block] - 1 - static_cast<uint32_t>(random.below(4))] ^= static_cast<uint8_t>(random.bits());
    if (damage == 3)
      lengths[block] = static_cast<uint32_t>(16 + 16 * random.below(static_cast<int>(lengths[block] / 16)));
    if (damage == 4)
      for (uint32_t i = 0; i < lengths[block]; ++i) payload[i] = static_cast<uint8_t>(random.bits());
  }

  const DeviceArray<uint8_t> in(payloads), out(Bytes(values.size(), 0xa5));
  const DeviceArray<uint32_t> device_lengths(lengths), verdicts(std::vector<uint32_t>(96, 0));
  decode_kernel<Dtype><<<96, 32, shared>>>(reinterpret_cast<const char*>(in.data()), device_lengths.data(),
                                           reinterpret_cast<char*>(out.data()), verdicts.data());
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Bytes decoded = out.read();
  const std::vector<uint32_t> found = verdicts.read();
  Bytes expected(stride);
  for (size_t block = 0; block < lengths.size(); ++block) {
    CAPTURE(block);
    CAPTURE(damage);
    const bool valid =
        codec::window::reference.decode(type, &payloads[block * stride], lengths[block], expected.data());
    CHECK((found[block] & 1) == (valid ? 1 : 0));
    CHECK((found[block] & 2) != 0);
    if (valid)
      CHECK(
          std::equal(expected.begin(), expected.end(), decoded.begin() + static_cast<std::ptrdiff_t>(block * stride)));
  }
}

template <typename Check>
void for_each_type(Check check) {
  check.template operator()<NCAST_BFLOAT16>();
  check.template operator()<NCAST_FLOAT16>();
  check.template operator()<NCAST_FLOAT32>();
  check.template operator()<NCAST_FLOAT64>();
  check.template operator()<NCAST_FLOAT8_E4M3>();
  check.template operator()<NCAST_FLOAT8_E5M2>();
}

}  // namespace

TEST_CASE("a warp encodes blocks of every pattern like the reference") {
  Random random(20);
  for_each_type([&]<ncast_dtype Dtype>() { check_encoding<Dtype>(random); });
}

TEST_CASE("a warp decodes payloads of the reference") {
  Random random(21);
  for_each_type([&]<ncast_dtype Dtype>() { check_decoding<Dtype>(random, 0); });
}

TEST_CASE("a warp accepts the same damaged payloads as the reference and writes only the values") {
  Random random(22);
  for (int damage = 1; damage <= 4; ++damage)
    for_each_type([&]<ncast_dtype Dtype>() { check_decoding<Dtype>(random, damage); });
}

}  // namespace narrowcast::tests
