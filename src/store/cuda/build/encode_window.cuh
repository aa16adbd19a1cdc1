// Encodes rows with the coder `window` (docs/format/rows.md).
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../../codec/window/packing.cuh"
#include "../../../device/warp.cuh"
#include "../../rows/window_layout.h"
#include "encode_arguments.h"
#include "encode_rows.cuh"

namespace narrowcast::store::cuda {

namespace window = codec::window;

// Two passes over the elements: the first counts escapes, so that the second knows where each section begins, and so
// that rows that do not shrink are found before anything is stored.
// is_trimmed: float16 without its low three bits, the only type whose head changes.
// lanes_of_row: less than 32 for rows of up to 32 elements a lane without the stage `zeros`. They have one group.
template <window::ValueType Type, bool is_trimmed = false, uint32_t lanes_of_row = 32>
class EncodeWindow {
 public:
  using Lanes = RowLanes<lanes_of_row>;
  using Elem = std::conditional_t<Type.value_bytes == 1, uint8_t,
                                  std::conditional_t<Type.value_bytes == 2, uint16_t,
                                                     std::conditional_t<Type.value_bytes == 4, uint32_t, uint64_t>>>;
  static constexpr uint32_t most_samples = max_row_samples < 32 * Lanes::count ? max_row_samples : 32 * Lanes::count;
  // below[lead + b]: samples in the bins before b. Windows may extend past the last bin.
  static constexpr uint32_t lead = window::below_tokens, reach = 31 + window::above_tokens;
  struct alignas(16) Shared {
    uint16_t samples[most_samples];
    uint16_t below[lead + window::bins + reach + 1];
    uint32_t histogram[window::bins + 1];  // the last one counts the samples outside all others and is not read
    uint8_t tokens[32 * Lanes::count + 4];
  };

  __device__ static uint32_t encode(const EncodeFormat& format, const Elem* row, uint32_t* payload, Elem* present,
                                    uint32_t*, Shared& shared, bool stores) {
    const Elem* elems = row;
    uint32_t count = format.elems, map_bytes = 0;
    if constexpr (Lanes::is_warp)
      if (format.has_zeros) {
        count = split_zeros(row, format.elems, payload + 1, present);
        elems = present;
        map_bytes = (format.elems + 31) / 32 * 4;
      }
    bool fits = follow_trim<Lanes>(format, elems, count);
    if (Lanes::is_warp && !fits) return 0;
    EncodeWindow encoder(format, elems, count, reinterpret_cast<uint8_t*>(payload + 1) + map_bytes, shared);
    encoder.place_window();
    encoder.count_escapes();
    const uint64_t bytes = map_bytes + encoder.body_bytes();
    fits = fits && encoder.escapes_ <= max_row_escapes && bytes < aligned4(format.row_bytes);
    encoder.stores_ = Lanes::is_warp || (fits && stores);
    if (Lanes::is_warp && !fits) return 0;
    if (encoder.stores_ && Lanes::lane() == 0)
      *payload =
          encoder.width_ << row_width_shift | encoder.base_ << row_base_shift | encoder.escapes_ << row_escapes_shift;
    encoder.store_body();
    return fits ? static_cast<uint32_t>(header_bytes + bytes) : 0;
  }

 private:
  static constexpr uint32_t exponent_shift = 8 * Type.value_bytes - 1 - Type.exponent_bits;
  static constexpr uint32_t exponent_mask = (1u << Type.exponent_bits) - 1;
  static constexpr uint32_t head_shift = is_trimmed ? 3 : 8 * Type.tail_bytes;
  static constexpr uint32_t mantissa_bits = exponent_shift - head_shift;  // of the head
  static constexpr uint32_t rest_bits = is_trimmed ? 0 : Type.rest_bits;
  static constexpr int words = window::group_words, vector_elems = Type.vector_elems();
  static constexpr uint32_t max_width = Type.max_width(), far_bytes = Type.far_bytes();

  __device__ EncodeWindow(const EncodeFormat& format, const Elem* elems, uint32_t count, uint8_t* body, Shared& shared)
      : elems_(elems),
        count_(count),
        in_lanes_(count / 32 * 32),
        tail_bytes_(format.tail_bytes),
        low_bits_(format.low_bits),
        coded_bytes_((format.coded_bits + 7) / 8),
        body_(body),
        shared_(shared),
        lane_(Lanes::lane()) {}

  __device__ static uint32_t exponent_of(Elem elem) {
    return static_cast<uint32_t>(elem >> exponent_shift) & exponent_mask;
  }
  __device__ uint32_t escape_code() const { return (1u << width_) - 1; }
  __device__ uint32_t code_of(uint32_t exponent) const {
    return min(exponent - base_, escape_code());  // wraps around below the base
  }
  // The index in its group of element `sequence` of this lane.
  __device__ uint32_t element(uint32_t sequence, uint32_t lanes) const {
    return (lanes * (sequence / vector_elems) + lane_) * vector_elems + sequence % vector_elems;
  }
  __device__ uint32_t lane_bytes() const { return 32 * (tail_bytes_ + Type.rest_bytes) + 4 * (rest_bits + width_); }
  __device__ uint32_t fixed_bytes() const {
    return in_lanes_ / 32 * lane_bytes() + (count_ - in_lanes_) * coded_bytes_;
  }
  __device__ uint64_t body_bytes() const {
    return aligned4(fixed_bytes() + (escapes_ + 1) / 2 + uint64_t{far_} * far_bytes);
  }

  // The encoder's rule in docs/format/rows.md. The lanes divide the bins of the histogram.
  __device__ void place_window() {
    const uint32_t count = min(in_lanes_, most_samples);
    uint32_t zeros = 0;
    for (uint32_t i = lane_; i < count; i += Lanes::count) {
      // i * in_lanes_ / count; the product is below 2^24.
      const uint32_t at = in_lanes_ > max_row_samples ? i * in_lanes_ / uint32_t{max_row_samples} : i;
      const uint32_t exponent = exponent_of(elems_[at]);
      shared_.samples[i] = static_cast<uint16_t>(exponent);
      zeros += exponent == 0 ? 1 : 0;
    }
    zeros = Lanes::sum(zeros);
    constexpr uint32_t lane_bins = window::bins / Lanes::count;
    const uint32_t first_bin = lane_ * lane_bins;
#pragma unroll
    for (uint32_t i = 0; i < lane_bins; ++i) shared_.histogram[first_bin + i] = 0;
    __syncwarp();
    const uint32_t columns = count / sample_quarters;
    uint32_t anchor = 0;
    for (uint32_t column = lane_; column < columns; column += Lanes::count) {
      uint32_t least = shared_.samples[column];
      for (uint32_t quarter = 1; quarter < sample_quarters; ++quarter)
        least = min(least, uint32_t{shared_.samples[quarter * columns + column]});
      anchor = max(anchor, least);
    }
    anchor = Lanes::largest(anchor);
    const uint32_t lowest = anchor > window::bins_below_anchor ? anchor - window::bins_below_anchor : 0;
    for (uint32_t i = lane_; i < count; i += Lanes::count) {
      const uint32_t bin = min(shared_.samples[i] - lowest, uint32_t{window::bins});  // wraps around below `lowest`
      atomicAdd(&shared_.histogram[bin], 1u);
    }
    __syncwarp();
    sum_bins(first_bin);
    // The lowest cost, and among equals the larger width, then the lower bin. Costs may be negative.
    const auto total = static_cast<int>(count), far_bits = 8 * static_cast<int>(far_bytes),
               escape_bits = escape_cost(Type.exponent_bits, count);
    uint32_t best = ~0u;
#pragma unroll
    for (uint32_t i = 0; i < lane_bins; ++i) {
      const uint32_t bin = lane_ + i * Lanes::count;
      const uint16_t* const below = shared_.below + lead + bin;
      const int near_begin = shared_.below[bin], begin = below[0];  // `lead` is below_tokens
      const int far_zeros = lowest == 0 && bin <= window::below_tokens ? 0 : static_cast<int>(zeros);
#pragma unroll
      for (uint32_t width = 1; width <= max_width; ++width) {
        const uint32_t span = (1u << width) - 1;
        const int escapes = total - (below[span] - begin);
        const int far = total - (below[span + window::above_tokens] - near_begin) - far_zeros;
        const int cost = static_cast<int>(width) * total + escape_bits * escapes + far_bits * far;
        best = min(best, static_cast<uint32_t>(cost + cost_bias) << 8 | (max_width - width) << 5 | bin);
      }
    }
    best = ~Lanes::largest(~best);
    width_ = max_width - (best >> 5 & 7);
    base_ = min(lowest + (best & 31), exponent_mask + 1 - (1u << width_));
    __syncwarp();
  }

  // Costs are at least -256 x (6 + 16).
  static constexpr int cost_bias = 1 << 20;

  // Fills `below`. Each lane has neighbouring bins.
  __device__ void sum_bins(uint32_t first_bin) {
    constexpr uint32_t lane_bins = window::bins / Lanes::count;
    uint32_t own[lane_bins], sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < lane_bins; ++i) sum += own[i] = shared_.histogram[first_bin + i];
    const uint32_t up_to = Lanes::inclusive_scan(sum), total = Lanes::last(up_to);
    uint32_t before = up_to - sum;
#pragma unroll
    for (uint32_t i = 0; i < lane_bins; ++i) {
      shared_.below[lead + first_bin + i] = static_cast<uint16_t>(before);
      before += own[i];
    }
    for (uint32_t i = lane_; i < lead; i += Lanes::count) shared_.below[i] = 0;
    for (uint32_t i = lane_; i <= reach; i += Lanes::count)
      shared_.below[lead + window::bins + i] = static_cast<uint16_t>(total);
    __syncwarp();
  }

  __device__ uint32_t token_of(uint32_t exponent) const {
    const uint32_t from_lowest = exponent + window::below_tokens - base_, above = exponent - (base_ + escape_code());
    if (exponent == 0) return window::zero_token;
    if (exponent < base_ && from_lowest < window::below_tokens) return from_lowest;
    if (above < window::above_tokens) return window::below_tokens + above;
    return window::far_token;
  }

  __device__ void count_escapes() {
    uint32_t escapes = 0, far = 0;
    // Several loads at a time, because a long row has only one warp.
#pragma unroll 8
    for (uint32_t i = lane_; i < in_lanes_; i += Lanes::count) {
      const uint32_t exponent = exponent_of(elems_[i]);
      const bool is_escape = code_of(exponent) == escape_code();
      escapes += is_escape ? 1 : 0;
      far += is_escape && token_of(exponent) == window::far_token ? 1 : 0;
    }
    escapes_ = Lanes::sum(escapes);
    far_ = Lanes::sum(far);
  }

  __device__ void store_body() {
    group_ = body_;
    tokens_ = body_ + fixed_bytes();
    far_exponents_ = tokens_ + (escapes_ + 1) / 2;
    uint8_t* const rest = body_ + in_lanes_ / 32 * lane_bytes();
    uint8_t* const padding = far_exponents_ + far_ * far_bytes;
    for (uint32_t first = 0; first < in_lanes_; first += window::group_elems)
      store_group(elems_ + first, min(in_lanes_ - first, uint32_t{window::group_elems}) / 32);
    if (!stores_) return;
    if (held_ != 0 && lane_ == 0) *tokens_ = shared_.tokens[0];
    for (uint32_t i = lane_; in_lanes_ + i < count_; i += Lanes::count) {
      const uint64_t coded = static_cast<uint64_t>(elems_[in_lanes_ + i]) >> low_bits_;
      for (uint32_t byte = 0; byte < coded_bytes_; ++byte)
        rest[i * coded_bytes_ + byte] = static_cast<uint8_t>(coded >> 8 * byte);
    }
    if (padding + lane_ < body_ + body_bytes()) padding[lane_] = 0;
  }

  // lanes: that have elements of the group, 32 each.
  __device__ void store_group(const Elem* elems, uint32_t lanes) {
    const bool has_elems = stores_ && lane_ < lanes;
    uint8_t* const rest_bytes = group_ + 32 * lanes * tail_bytes_;
    uint8_t* const packed_rest = rest_bytes + 32 * lanes * Type.rest_bytes;
    uint32_t escaped = 0, far = 0;  // bit 8 * byte + word: an element that is an escape
    if (has_elems) {
      uint32_t codes[words], rests[words];
      Elem own[window::lanes];
      // All loads before the first store: the compiler does not move loads across stores.
#pragma unroll
      for (int i = 0; i < window::lanes; ++i) own[i] = elems[element(i, lanes)];
#pragma unroll
      for (int word = 0; word < words; ++word) {
        uint32_t code_word = 0, byte_word = 0, rest_word = 0;
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
          const uint32_t at = element(4 * word + byte, lanes);
          const Elem elem = own[4 * word + byte];
          const uint32_t exponent = exponent_of(elem), code = code_of(exponent);
          code_word |= code << 8 * byte;
          if (code == escape_code()) {
            escaped |= 1u << (8 * byte + word);
            far += token_of(exponent) == window::far_token ? 1 : 0;
          }
          const auto head = static_cast<uint32_t>(elem >> head_shift);
          const uint32_t sign = static_cast<uint32_t>(elem >> (8 * Type.value_bytes - 1)) & 1;
          const uint32_t rest = sign << mantissa_bits | (head & ((1u << mantissa_bits) - 1));
          if constexpr (Type.rest_bytes != 0) byte_word |= (rest & 0xff) << 8 * byte;
          if constexpr (rest_bits != 0) rest_word |= rest >> 8 * Type.rest_bytes << 8 * byte;
          if constexpr (Type.tail_bytes != 0) {
            const auto tail = static_cast<uint64_t>(elem) >> low_bits_;
            for (uint32_t i = 0; i < tail_bytes_; ++i)
              group_[at * tail_bytes_ + i] = static_cast<uint8_t>(tail >> 8 * i);
          }
        }
        codes[word] = code_word;
        rests[word] = rest_word;
        if constexpr (Type.rest_bytes != 0)
          *reinterpret_cast<uint32_t*>(rest_bytes + element(4 * word, lanes)) = byte_word;
      }
      if constexpr (rest_bits != 0) store_packed<static_cast<int>(rest_bits)>(rests, packed_rest, lanes);
      uint8_t* const section = packed_rest + 4 * lanes * rest_bits;
      switch (width_) {
        case 1: store_packed<1>(codes, section, lanes); break;
        case 2: store_packed<2>(codes, section, lanes); break;
        case 3: store_packed<3>(codes, section, lanes); break;
        case 4: store_packed<4>(codes, section, lanes); break;
        default: store_packed<5>(codes, section, lanes); break;
      }
    }
    store_escapes(elems, lanes, escaped, far);
    group_ += lanes * lane_bytes();
  }

  template <int Width>
  __device__ void store_packed(const uint32_t (&fields)[words], uint8_t* section, uint32_t lanes) const {
    uint32_t packed[Width];
    window::pack<Width>(fields, packed);
    for (int row = 0; row < Width; ++row)
      *reinterpret_cast<uint32_t*>(section + (row * lanes + lane_) * 4) = packed[row];
  }

  // Appends the tokens and far exponents of a group. Tokens are collected as bytes, because two of them share one; the
  // first half of a byte is held until the other is known.
  __device__ void store_escapes(const Elem* elems, uint32_t lanes, uint32_t escaped, uint32_t far) {
    const uint32_t own = __popc(escaped), up_to = Lanes::inclusive_scan(own), total = Lanes::last(up_to);
    if (Lanes::is_warp && total == 0) return;
    const uint32_t far_up_to = Lanes::inclusive_scan(far);
    uint32_t at = held_ + up_to - own;
    uint8_t* next_far = far_exponents_ + (far_up_to - far) * far_bytes;
    for (uint32_t left = escaped; left != 0; left &= left - 1, ++at) {
      const uint32_t bit = static_cast<uint32_t>(__ffs(static_cast<int>(left)) - 1);
      const uint32_t exponent = exponent_of(elems[element(bit % 8 * 4 + bit / 8, lanes)]), token = token_of(exponent);
      shared_.tokens[at] = static_cast<uint8_t>(token);
      if (token != window::far_token) continue;
      for (uint32_t i = 0; i < far_bytes; ++i) *next_far++ = static_cast<uint8_t>(exponent >> 8 * i);
    }
    far_exponents_ += Lanes::last(far_up_to) * far_bytes;
    __syncwarp();
    const uint32_t tokens = held_ + total, pairs = tokens / 2;
    for (uint32_t i = lane_; i < pairs; i += Lanes::count)
      tokens_[i] = static_cast<uint8_t>(shared_.tokens[2 * i] | shared_.tokens[2 * i + 1] << 4);
    tokens_ += pairs;
    held_ = tokens % 2;
    const uint8_t last = tokens == 0 ? 0 : shared_.tokens[tokens - 1];
    __syncwarp();
    if (held_ != 0 && lane_ == 0) shared_.tokens[0] = last;
    __syncwarp();
  }

  const Elem* elems_;
  uint32_t count_, in_lanes_, tail_bytes_, low_bits_, coded_bytes_;
  uint8_t* body_;
  Shared& shared_;
  uint32_t lane_;
  uint32_t width_ = 0, base_ = 0, escapes_ = 0, far_ = 0;
  uint8_t* group_ = nullptr;   // the next group
  uint8_t* tokens_ = nullptr;  // the next byte of tokens
  uint8_t* far_exponents_ = nullptr;
  bool stores_ = false;  // whether the row is encoded
  uint32_t held_ = 0;    // 1: tokens[0] is the first half of a byte
};

}  // namespace narrowcast::store::cuda
