// Conformance of every codec in the table on the GPU: kernels write the same bytes as the host and decode them.
#include <algorithm>
#include <cstring>

#include "codec/every_codec.h"
#include "doctest/doctest.h"
#include "narrowcast/cuda.h"
#include "support/device_array.h"

namespace narrowcast::tests {
namespace {

// Frames and slots of the same values on the host and on the GPU.
class GpuCase {
 public:
  // offset: misaligns the values by this number of elements.
  GpuCase(ncast_codec codec, ncast_dtype dtype, uint64_t elems, uint64_t offset, Random& random)
      : codec_(codec),
        dtype_(dtype),
        elems_(elems),
        value_bytes_(ncast_dtype_bytes(dtype)),
        offset_bytes_(offset * value_bytes_),
        values_(make_values(dtype, elems, random)) {
    Bytes frame(ncast_bound(dtype, codec, elems));
    size_t wire_bytes = 0;
    REQUIRE(ncast_encode(values_.data(), dtype, elems, codec, NCAST_NO_CHECKSUM, frame.data(), frame.size(),
                         &wire_bytes) == NCAST_OK);
    frame.resize(wire_bytes);
    frame_ = frame;
    decoded_.resize(values_.size());
    REQUIRE(ncast_decode(frame.data(), frame.size(), 0, decoded_.data(), decoded_.size(), nullptr) == NCAST_OK);
  }

  void check_frame() const {
    const DeviceArray<uint8_t> values(placed(values_));
    const DeviceArray<uint8_t> frame(Bytes(ncast_bound(dtype_, codec_, elems_), 0xa5));
    const size_t workspace_bytes = ncast_cuda_workspace_bytes(dtype_, codec_, elems_);
    const DeviceArray<uint8_t> workspace(Bytes(workspace_bytes + 16, 0x5a));
    REQUIRE(ncast_cuda_encode(values.data() + offset_bytes_, dtype_, elems_, codec_, 0, frame.data(),
                              ncast_bound(dtype_, codec_, elems_), workspace.data(), workspace_bytes, nullptr,
                              nullptr) == NCAST_OK);
    Bytes written = frame.read();
    uint64_t wire_bytes = 0;
    std::memcpy(&wire_bytes, written.data() + 16, sizeof wire_bytes);
    REQUIRE(wire_bytes == frame_.size());
    written.resize(frame_.size());
    CHECK(written == frame_);
    check_decoding(frame.data(), frame_.size());
  }

  void check_slots() const {
    if (elems_ == 0) return;
    const uint64_t slots = ncast_slot_count(dtype_, codec_, elems_);
    const DeviceArray<uint8_t> values(placed(values_));
    const DeviceArray<uint8_t> payloads(Bytes(slots * ncast_slot_bytes(dtype_, codec_), 0xa5));
    const DeviceArray<uint32_t> lengths(std::vector<uint32_t>(slots, ~0u));
    REQUIRE(ncast_cuda_encode_slots(values.data() + offset_bytes_, dtype_, elems_, codec_, payloads.data(),
                                    lengths.data(), nullptr, nullptr) == NCAST_OK);
    const DeviceArray<uint8_t> back(Bytes(offset_bytes_ + values_.size(), 0xa5));
    const DeviceArray<ncast_device_status> status({NCAST_OK});
    REQUIRE(ncast_cuda_decode_slots(payloads.data(), lengths.data(), dtype_, codec_, elems_,
                                    back.data() + offset_bytes_, status.data(), nullptr, nullptr) == NCAST_OK);
    CHECK(status.read()[0] == NCAST_OK);
    CHECK(without_offset(back.read()) == decoded_);
  }

  // A header whose codec, type, counts or parameters differ from the caller's arguments must be reported as corrupt.
  void check_wrong_headers() const {
    for (const size_t byte : {0, 4, 5, 6, 8, 40}) {
      CAPTURE(byte);
      Bytes damaged = frame_;
      damaged[byte] ^= 0x40;
      const DeviceArray<uint8_t> frame(damaged);
      const DeviceArray<uint8_t> back(Bytes(offset_bytes_ + values_.size() + 16));
      const DeviceArray<ncast_device_status> status({NCAST_OK});
      REQUIRE(ncast_cuda_decode(frame.data(), damaged.size(), dtype_, codec_, elems_, back.data() + offset_bytes_,
                                status.data(), nullptr, nullptr) == NCAST_OK);
      CHECK(status.read()[0] == NCAST_CORRUPT);
    }
  }

 private:
  void check_decoding(const uint8_t* frame, size_t frame_bytes) const {
    const DeviceArray<uint8_t> back(Bytes(offset_bytes_ + values_.size() + 16, 0xa5));
    const DeviceArray<ncast_device_status> status({NCAST_OK});
    REQUIRE(ncast_cuda_decode(frame, frame_bytes, dtype_, codec_, elems_, back.data() + offset_bytes_, status.data(),
                              nullptr, nullptr) == NCAST_OK);
    CHECK(status.read()[0] == NCAST_OK);
    Bytes written = back.read();
    CHECK(std::count(written.end() - 16, written.end(), 0xa5) == 16);  // no byte after the values is written
    written.resize(written.size() - 16);
    CHECK(without_offset(written) == decoded_);
  }
  Bytes placed(const Bytes& values) const {
    Bytes bytes(offset_bytes_, 0);
    bytes.insert(bytes.end(), values.begin(), values.end());
    bytes.resize(bytes.size() + 16);
    return bytes;
  }
  Bytes without_offset(Bytes bytes) const {
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(offset_bytes_));
    return bytes;
  }

  ncast_codec codec_;
  ncast_dtype dtype_;
  uint64_t elems_;
  size_t value_bytes_, offset_bytes_;
  Bytes values_, frame_, decoded_;
};

TEST_CASE("the kernels of every codec write and read the same frames and slots as the host") {
  Random random(2024);
  for_each_codec([&](const ncast_codec_info& info, ncast_codec codec) {
    for (int number = 0; number <= last_dtype; ++number) {
      const auto dtype = static_cast<ncast_dtype>(number);
      if (type_of(info, dtype) == nullptr) continue;
      const uint64_t block = ncast_slot_bytes(dtype, codec) / ncast_dtype_bytes(dtype);
      for (const uint64_t elems : {uint64_t{0}, uint64_t{1}, block - 1, block, block + 1, 7 * block + 5, 900 * block}) {
        for (const uint64_t offset : {0, 1}) {
          CAPTURE(text_of(codec));
          CAPTURE(ncast_dtype_name(dtype));
          CAPTURE(elems);
          CAPTURE(offset);
          const GpuCase gpu(codec, dtype, elems, offset, random);
          gpu.check_frame();
          gpu.check_slots();
        }
      }
      GpuCase(codec, dtype, 2 * block + 3, 0, random).check_wrong_headers();
    }
  });
}

}  // namespace
}  // namespace narrowcast::tests
