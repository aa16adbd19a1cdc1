// Writes the bits of payloads.
#pragma once

#include <cstdint>

#include "../../../device/warp.cuh"

namespace narrowcast::store::cuda {

// A stream of bits in 32-bit words, the lowest bit first, that a warp writes. Each word is stored once, by one lane:
// lanes look up the fields that overlap their word, so no atomic operations are needed. The whole warp calls all
// functions.
class BitEmitter {
 public:
  // Memory that the lanes share.
  struct Shared {
    uint64_t bits[32];
    uint32_t begins[32];
  };

  // The stream begins with `filled` zero bits, less than 32.
  __device__ BitEmitter(Shared& shared, uint32_t* words, uint32_t filled)
      : shared_(shared), words_(words), filled_(filled) {}

  // Appends the field of each lane, in the order of the lanes. count: at most 64; bits above it must be 0.
  __device__ void put(uint64_t bits, uint32_t count) {
    const uint32_t lane = device::lane_id();
    const uint32_t up_to = device::inclusive_scan(count);
    const uint32_t total = filled_ + __shfl_sync(device::all_lanes, up_to, 31);
    shared_.bits[lane] = bits;
    shared_.begins[lane] = filled_ + up_to - count;
    __syncwarp();
    const uint32_t whole = total / 32;
    for (uint32_t word = lane; word < whole; word += 32) words_[word] = word_of(word);
    const uint32_t rest = word_of(whole);  // the same in all lanes
    __syncwarp();
    words_ += whole;
    begun_ = rest;
    filled_ = total % 32;
  }
  // Stores the last word. Bits behind the stream are 0.
  __device__ void finish() {
    if (filled_ != 0 && device::lane_id() == 0) *words_ = begun_;
  }

 private:
  __device__ uint32_t word_of(uint32_t word) const {
    const uint32_t begin = 32 * word;
    uint32_t result = word == 0 ? begun_ : 0;
    // The last field that begins at or before the word, or the first one.
    uint32_t field = 0;
#pragma unroll
    for (uint32_t step = 16; step != 0; step /= 2)
      if (shared_.begins[field + step] <= begin) field += step;
    for (; field < 32 && shared_.begins[field] < begin + 32; ++field) {
      const uint32_t at = shared_.begins[field];
      const uint64_t bits = shared_.bits[field];
      if (at >= begin)
        result |= static_cast<uint32_t>(bits << (at - begin));
      else if (begin - at < 64)
        result |= static_cast<uint32_t>(bits >> (begin - at));
    }
    return result;
  }

  Shared& shared_;
  uint32_t* words_;
  uint32_t filled_;
  uint32_t begun_ = 0;  // the bits of the next word
};

}  // namespace narrowcast::store::cuda
