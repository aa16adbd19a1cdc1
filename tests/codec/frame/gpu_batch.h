// A batch in GPU memory, for tests, and what the host makes of its arrays.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "codec/every_codec.h"
#include "doctest/doctest.h"
#include "narrowcast/cuda.h"
#include "support/device_array.h"

namespace narrowcast::tests {

inline constexpr uint8_t poison = 0xa5;

// Pieces of device memory, all in one allocation, with poison around them.
class Pieces {
 public:
  // misalignment: of the piece's address. Returns the number of the piece.
  size_t add(const Bytes& content, size_t misalignment = 0) {
    offsets_.push_back((bytes_.size() + 64 + 15) / 16 * 16 + misalignment);
    sizes_.push_back(content.size());
    bytes_.resize(offsets_.back(), poison);
    bytes_.insert(bytes_.end(), content.begin(), content.end());
    return offsets_.size() - 1;
  }
  void upload() {
    bytes_.resize(bytes_.size() + 64, poison);
    memory_ = std::make_unique<DeviceArray<uint8_t>>(bytes_);
  }
  uint8_t* at(size_t piece) const { return memory_->data() + offsets_[piece]; }
  void download() { found_ = memory_->read(); }
  Bytes content(size_t piece, size_t bytes) const {
    const auto begin = found_.begin() + static_cast<std::ptrdiff_t>(offsets_[piece]);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
  }
  // Whether the bytes between the pieces, and those of a piece after its first used[i] ones, have not changed.
  bool untouched(const std::vector<size_t>& used) const {
    size_t at = 0;
    for (size_t i = 0; i <= offsets_.size(); ++i) {
      const size_t end = i == offsets_.size() ? found_.size() : offsets_[i];
      for (; at < end; ++at)
        if (found_[at] != bytes_[at]) return false;
      if (i < offsets_.size()) at += used[i];
    }
    return true;
  }

 private:
  Bytes bytes_, found_;
  std::vector<size_t> offsets_, sizes_;
  std::unique_ptr<DeviceArray<uint8_t>> memory_;
};

template <typename T>
std::vector<T> filled(size_t count, T value) {
  return std::vector<T>(count, value);
}

struct Array {
  ncast_dtype dtype;
  uint64_t elems;
  size_t misalignment = 0;  // in values
};

// Values of an array. Those of small arrays are parts of the same values, because new ones take long.
inline Bytes values_of(const Array& array, Random& random) {
  static std::map<ncast_dtype, Bytes> pools;
  const size_t bytes = array.elems * ncast_dtype_bytes(array.dtype), pool_bytes = 1 << 18;
  if (bytes >= 4096) return make_values(array.dtype, array.elems, random);
  Bytes& pool = pools[array.dtype];
  if (pool.empty()) pool = make_values(array.dtype, pool_bytes / ncast_dtype_bytes(array.dtype), random);
  const auto begin = pool.begin() + 16 * random.below(static_cast<int>((pool_bytes - bytes) / 16));
  return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
}

// A batch and what the host makes of its arrays.
class GpuBatch {
 public:
  GpuBatch(ncast_codec codec, const std::vector<Array>& arrays, uint64_t seed) : codec_(codec), arrays_(arrays) {
    Random random(seed);
    uint64_t raw_bytes = 0;
    for (const Array& array : arrays) {
      values_.push_back(values_of(array, random));
      Bytes frame(ncast_bound(array.dtype, codec, array.elems));
      bounds_.push_back(frame.size());
      size_t wire_bytes = 0;
      REQUIRE(ncast_encode(values_.back().data(), array.dtype, array.elems, codec, NCAST_NO_CHECKSUM, frame.data(),
                           frame.size(), &wire_bytes) == NCAST_OK);
      frame.resize(wire_bytes);
      Bytes decoded(values_.back().size());
      REQUIRE(ncast_decode(frame.data(), frame.size(), 0, decoded.data(), decoded.size(), nullptr) == NCAST_OK);
      expected_.push_back(frame);
      decoded_.push_back(decoded);
      raw_bytes += decoded.size();
    }
    raw_bytes_ = raw_bytes;
    for (size_t i = 0; i < arrays.size(); ++i) {
      const size_t shift = arrays[i].misalignment * ncast_dtype_bytes(arrays[i].dtype);
      inputs_.add(values_[i], shift);
      frames_.add(Bytes(bounds_[i], poison));
      outputs_.add(Bytes(values_[i].size(), poison), shift);
    }
    inputs_.upload();
    frames_.upload();
    outputs_.upload();
    for (size_t i = 0; i < arrays.size(); ++i) {
      in.push_back(inputs_.at(i));
      frame.push_back(frames_.at(i));
      const_frame.push_back(frames_.at(i));
      out.push_back(outputs_.at(i));
      dtypes.push_back(arrays[i].dtype);
      elems.push_back(arrays[i].elems);
      capacities.push_back(bounds_[i]);
      value_capacities.push_back(values_[i].size());
    }
  }

  size_t count() const { return arrays_.size(); }
  const Bytes& expected(size_t i) const { return expected_[i]; }

  // Uploads the arrays of arguments.
  void upload() {
    d_in = std::make_unique<DeviceArray<const void*>>(in);
    d_frame = std::make_unique<DeviceArray<void*>>(frame);
    d_const_frame = std::make_unique<DeviceArray<const void*>>(const_frame);
    d_out = std::make_unique<DeviceArray<void*>>(out);
    d_dtypes = std::make_unique<DeviceArray<ncast_dtype>>(dtypes);
    d_elems = std::make_unique<DeviceArray<uint64_t>>(elems);
    d_capacities = std::make_unique<DeviceArray<size_t>>(capacities);
    d_value_capacities = std::make_unique<DeviceArray<size_t>>(value_capacities);
    d_wire_bytes = std::make_unique<DeviceArray<size_t>>(filled<size_t>(count(), 77));
    d_value_bytes = std::make_unique<DeviceArray<size_t>>(filled<size_t>(count(), 77));
    d_statuses = std::make_unique<DeviceArray<ncast_device_status>>(filled<uint32_t>(count(), 99));
    const size_t most = std::max(ncast_cuda_encode_batch_workspace_bytes(count(), raw_bytes_, codec_),
                                 ncast_cuda_decode_batch_workspace_bytes(count()));
    workspace_bytes = most;
    d_workspace = std::make_unique<DeviceArray<uint8_t>>(Bytes(most, poison));
  }
  void encode(const ncast_cuda_options* options = nullptr, cudaStream_t stream = nullptr, uint32_t flags = 0) {
    REQUIRE(ncast_cuda_encode_batch(count(), d_in->data(), d_dtypes->data(), d_elems->data(), codec_, flags,
                                    d_frame->data(), d_capacities->data(), d_wire_bytes->data(), d_statuses->data(),
                                    d_workspace->data(), workspace_bytes, options, stream) == NCAST_OK);
  }
  // Reads frame_bytes where the encoder has written them, unless other sizes are given.
  void decode(const ncast_cuda_options* options = nullptr, cudaStream_t stream = nullptr,
              const size_t* frame_bytes = nullptr) {
    REQUIRE(ncast_cuda_decode_batch(count(), d_const_frame->data(),
                                    frame_bytes != nullptr ? frame_bytes : d_wire_bytes->data(), codec_, d_out->data(),
                                    d_value_capacities->data(), d_value_bytes->data(), d_statuses->data(),
                                    d_workspace->data(), workspace_bytes, options, stream) == NCAST_OK);
  }
  // Checks the frames of arrays with status OK; `bad` lists the others.
  void check_frames(const std::vector<std::pair<size_t, ncast_status>>& bad = {}) {
    REQUIRE_CUDA(cudaDeviceSynchronize());
    frames_.download();
    const std::vector<size_t> wire_bytes = d_wire_bytes->read();
    const std::vector<ncast_device_status> statuses = d_statuses->read();
    std::vector<size_t> used;
    for (size_t i = 0; i < count(); ++i) {
      const ncast_status status = status_of(bad, i);
      used.push_back(status == NCAST_OK ? expected_[i].size() : 0);
      const bool is_frame = status != NCAST_OK || frames_.content(i, expected_[i].size()) == expected_[i];
      if (statuses[i] == static_cast<uint32_t>(status) && wire_bytes[i] == used[i] && is_frame) continue;
      CAPTURE(i);
      REQUIRE(statuses[i] == static_cast<uint32_t>(status));
      REQUIRE(wire_bytes[i] == used[i]);
      REQUIRE(is_frame);
    }
    CHECK(frames_.untouched(used));
  }
  void check_values(const std::vector<std::pair<size_t, ncast_status>>& bad = {}) {
    REQUIRE_CUDA(cudaDeviceSynchronize());
    outputs_.download();
    const std::vector<size_t> value_bytes = d_value_bytes->read();
    const std::vector<ncast_device_status> statuses = d_statuses->read();
    std::vector<size_t> used;
    for (size_t i = 0; i < count(); ++i) {
      used.push_back(decoded_[i].size());
      const ncast_status status = status_of(bad, i);
      const size_t bytes = status == NCAST_OK ? decoded_[i].size() : 0;
      const bool has_values = outputs_.content(i, bytes) == (status == NCAST_OK ? decoded_[i] : Bytes());
      if (statuses[i] == static_cast<uint32_t>(status) && value_bytes[i] == bytes && has_values) continue;
      CAPTURE(i);
      REQUIRE(statuses[i] == static_cast<uint32_t>(status));
      REQUIRE(value_bytes[i] == bytes);
      REQUIRE(has_values);
    }
    CHECK(outputs_.untouched(used));
  }

  // The arguments, which tests may change before upload().
  std::vector<const void*> in, const_frame;
  std::vector<void*> frame, out;
  std::vector<ncast_dtype> dtypes;
  std::vector<uint64_t> elems;
  std::vector<size_t> capacities, value_capacities;
  std::unique_ptr<DeviceArray<const void*>> d_in, d_const_frame;
  std::unique_ptr<DeviceArray<void*>> d_frame, d_out;
  std::unique_ptr<DeviceArray<ncast_dtype>> d_dtypes;
  std::unique_ptr<DeviceArray<uint64_t>> d_elems;
  std::unique_ptr<DeviceArray<size_t>> d_capacities, d_value_capacities, d_wire_bytes, d_value_bytes;
  std::unique_ptr<DeviceArray<ncast_device_status>> d_statuses;
  std::unique_ptr<DeviceArray<uint8_t>> d_workspace;
  size_t workspace_bytes = 0;

 private:
  static ncast_status status_of(const std::vector<std::pair<size_t, ncast_status>>& bad, size_t i) {
    for (const auto& [number, status] : bad)
      if (number == i) return status;
    return NCAST_OK;
  }

  ncast_codec codec_;
  std::vector<Array> arrays_;
  uint64_t raw_bytes_ = 0;
  std::vector<Bytes> values_, expected_, decoded_;
  std::vector<size_t> bounds_;
  Pieces inputs_, frames_, outputs_;
};

}  // namespace narrowcast::tests
