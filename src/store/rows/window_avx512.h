// The coder `window` with AVX-512, for rows of 16-bit and 32-bit numbers: the bytes of window_reference.cc.
//
// Values are split by the loops that all instruction sets share. What is written for these instructions is the rest:
// the choice of the window, the codes of a group, and its escapes. Tests define STORE_AVX512 and emulate the
// instructions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "store/rows/avx512.h"
#include "store/rows/low_ones.h"
#include "store/rows/window_path.h"
#include "store/rows/window_row.h"

namespace narrowcast::store::window {

namespace {

// Indexes of a permutation, from a function of the place.
template <typename Index, typename Function>
constexpr auto permutation(Function index) {
  struct alignas(64) {
    Index of[64 / sizeof(Index)];
  } table{};
  for (size_t place = 0; place < std::size(table.of); ++place)
    table.of[place] = static_cast<Index>(index(static_cast<int>(place)));
  return table;
}

STORE_AVX512_INLINE int greatest_byte(__m512i bytes) {
  const __m512i inverse = _mm512_xor_si512(bytes, _mm512_set1_epi8(-1));
  const __m256i half = _mm256_min_epu8(_mm512_castsi512_si256(inverse), _mm512_extracti64x4_epi64(inverse, 1));
  __m128i least = _mm_min_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  least = _mm_min_epu8(least, _mm_srli_epi16(least, 8));
  return 0xff - (_mm_cvtsi128_si32(_mm_minpos_epu16(least)) & 0xff);
}

STORE_AVX512_INLINE int16_t least_number(__m512i numbers) {
  const __m512i biased = _mm512_xor_si512(numbers, _mm512_set1_epi16(INT16_MIN));
  const __m256i half = _mm256_min_epu16(_mm512_castsi512_si256(biased), _mm512_extracti64x4_epi64(biased, 1));
  const __m128i least = _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  return static_cast<int16_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(least)) ^ INT16_MIN);
}

// Counts the bytes of each number below 32 among 64 bytes. counts[i] has those of 8 * i to 8 * i + 7. Bytes of 32 are
// counted with those of 0.
STORE_AVX512_INLINE void count_bytes(__m512i bytes, __m512i (&counts)[4]) {
  // Bit b of all bytes in quadword b: a transposition in each quadword, and of the bytes of the quadwords.
  static constexpr auto gathered = permutation<uint8_t>([](int place) { return place % 8 * 8 + place / 8; });
  const __m512i columns = _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64(0x8040201008040201), bytes, 0);
  const __m512i planes = _mm512_permutexvar_epi8(_mm512_load_si512(&gathered), columns);
  __m512i bit[5];
  for (int i = 0; i < 5; ++i) bit[i] = _mm512_permutexvar_epi64(_mm512_set1_epi64(i), planes);
  // Quadword q: the bytes whose low three bits are q.
  const __m512i not0 = _mm512_set_epi64(0, -1, 0, -1, 0, -1, 0, -1);
  const __m512i not1 = _mm512_set_epi64(0, 0, -1, -1, 0, 0, -1, -1);
  const __m512i not2 = _mm512_set_epi64(0, 0, 0, 0, -1, -1, -1, -1);
  constexpr int and_xor = 0x60;  // a & (b ^ c)
  __m512i low = _mm512_xor_si512(bit[0], not0);
  low = _mm512_ternarylogic_epi64(low, bit[1], not1, and_xor);
  low = _mm512_ternarylogic_epi64(low, bit[2], not2, and_xor);
  // And whose bits 3 and 4 are those of i.
  const __m512i found[4] = {
      _mm512_ternarylogic_epi64(low, bit[3], bit[4], 0x10), _mm512_ternarylogic_epi64(low, bit[3], bit[4], 0x40),
      _mm512_ternarylogic_epi64(low, bit[3], bit[4], 0x20), _mm512_ternarylogic_epi64(low, bit[3], bit[4], 0x80)};
  for (int i = 0; i < 4; ++i) counts[i] = _mm512_add_epi64(counts[i], _mm512_popcnt_epi64(found[i]));
}

// The sums of the first i + 1 of 32 numbers, for each i.
STORE_AVX512_INLINE __m512i prefix_sums(__m512i numbers) {
  numbers = _mm512_add_epi16(numbers, _mm512_bslli_epi128(numbers, 2));
  numbers = _mm512_add_epi16(numbers, _mm512_bslli_epi128(numbers, 4));
  numbers = _mm512_add_epi16(numbers, _mm512_bslli_epi128(numbers, 8));
  // The last number of the part of eight before, and of that two before.
  static constexpr auto before = permutation<uint16_t>([](int place) { return std::max(place / 8 * 8 - 1, 0); });
  static constexpr auto two_before = permutation<uint16_t>([](int place) { return std::max(place / 8 * 8 - 9, 0); });
  numbers = _mm512_add_epi16(numbers, _mm512_maskz_permutexvar_epi16(0xffffff00, _mm512_load_si512(&before), numbers));
  return _mm512_add_epi16(numbers, _mm512_maskz_permutexvar_epi16(0xffff0000, _mm512_load_si512(&two_before), numbers));
}

// below[bin + offset] for each bin, where sums[i] is below[i + 1].
template <int offset>
STORE_AVX512_INLINE __m512i below_at(__m512i sums) {
  static constexpr auto places =
      permutation<uint16_t>([](int bin) { return std::clamp(bin + offset - 1, 0, bins - 1); });
  constexpr uint32_t not_zero = offset >= 1 ? ~uint32_t{0} : ~uint32_t{0} << (1 - offset);
  return _mm512_maskz_permutexvar_epi16(not_zero, _mm512_load_si512(&places), sums);
}

template <int width>
STORE_AVX512_INLINE __m512i costs_of(__m512i sums, __m512i least_cost, __m512i escape_bits, int count) {
  constexpr int span = (1 << width) - 1;
  const __m512i covered = _mm512_mullo_epi16(below_at<span>(sums), escape_bits);
  const __m512i near = _mm512_slli_epi16(below_at<span + above_tokens>(sums), 3);
  const __m512i codes = _mm512_add_epi16(least_cost, _mm512_set1_epi16(static_cast<int16_t>(width * count)));
  return _mm512_sub_epi16(codes, _mm512_add_epi16(covered, near));
}

// place_among() of window_placement.h for exponents of one byte.
// sample: an array of max_row_samples.
template <const ValueType& type>
STORE_AVX512 Placement place_bytes(const uint8_t* sample, int count) {
  static_assert(type.far_bytes() == 1 && bins == 32 && sample_quarters == 4);
  const int columns = count / 4;
  __m512i least = _mm512_loadu_si512(sample);
  for (int quarter = 1; quarter < 4; ++quarter)
    least = _mm512_min_epu8(least, _mm512_loadu_si512(sample + quarter * columns));
  const int anchor = greatest_byte(_mm512_maskz_mov_epi8(low_ones(columns), least));
  const int lowest = std::max(anchor - bins_below_anchor, 0);

  const __m512i first_bin = _mm512_set1_epi8(static_cast<char>(lowest)), outside = _mm512_set1_epi8(bins);
  __m512i counts[4] = {};
  int zeros = 0, outsiders = 0;
  for (int first = 0; first < count; first += 64) {
    const __mmask64 used = low_ones(std::min(count - first, 64));
    const __m512i exponents = _mm512_loadu_si512(sample + first);
    zeros += std::popcount(_mm512_mask_testn_epi8_mask(used, exponents, exponents));
    const __mmask64 above = _mm512_mask_cmpge_epu8_mask(used, exponents, first_bin);
    const __m512i bin = _mm512_min_epu8(_mm512_sub_epi8(exponents, first_bin), outside);
    const __m512i counted = _mm512_mask_mov_epi8(outside, above, bin);
    outsiders += std::popcount(_mm512_cmpeq_epi8_mask(counted, outside));
    count_bytes(counted, counts);
  }
  // Numbers of 16 bits, first those of one quadword.
  static constexpr auto by_bin = permutation<uint16_t>([](int bin) { return bin % 8 * 4 + bin / 8; });
  const __m512i low = _mm512_or_si512(counts[0], _mm512_slli_epi64(counts[1], 16));
  const __m512i high = _mm512_or_si512(_mm512_slli_epi64(counts[2], 32), _mm512_slli_epi64(counts[3], 48));
  const __m512i in_bins = _mm512_permutexvar_epi16(_mm512_load_si512(&by_bin), _mm512_or_si512(low, high));
  const __m512i sums = _mm512_sub_epi16(prefix_sums(in_bins), _mm512_set1_epi16(static_cast<int16_t>(outsiders)));

  // Costs without constant terms: of the bits of codes, tokens and far exponents.
  const uint32_t zeros_are_far = lowest == 0 ? ~uint32_t{0} << (below_tokens + 1) : ~uint32_t{0};
  const __m512i escape_bits =
      _mm512_set1_epi16(static_cast<int16_t>(escape_cost(type.exponent_bits, static_cast<size_t>(count))));
  const __m512i lost = _mm512_add_epi16(_mm512_mullo_epi16(below_at<0>(sums), escape_bits),
                                        _mm512_slli_epi16(below_at<-below_tokens>(sums), 3));
  const __m512i least_cost =
      _mm512_sub_epi16(lost, _mm512_maskz_mov_epi16(zeros_are_far, _mm512_set1_epi16(static_cast<int16_t>(8 * zeros))));
  constexpr int max_width = type.max_width();
  static_assert(max_width == 5);
  const __m512i costs[max_width] = {
      costs_of<1>(sums, least_cost, escape_bits, count), costs_of<2>(sums, least_cost, escape_bits, count),
      costs_of<3>(sums, least_cost, escape_bits, count), costs_of<4>(sums, least_cost, escape_bits, count),
      costs_of<5>(sums, least_cost, escape_bits, count)};
  __m512i best = costs[0];
  for (int width = 2; width <= max_width; ++width) best = _mm512_min_epi16(best, costs[width - 1]);
  const __m512i of_all = _mm512_set1_epi16(least_number(best));
  // Among equals the larger width, then the lower bin.
  int width = max_width;
  uint32_t equal = _mm512_cmpeq_epi16_mask(costs[width - 1], of_all);
  while (equal == 0) equal = _mm512_cmpeq_epi16_mask(costs[--width - 1], of_all);
  const int bin = std::countr_zero(equal);
  return {width, std::min(lowest + bin, (1 << type.exponent_bits) - (1 << width))};
}

// The words of 16 lanes, from `lane` on, one in each vector. No more than group_elems bytes are read.
// subtracted, most: the fields are byte - subtracted, but at most `most`.
template <const ValueType& type>
STORE_AVX512_INLINE void load_lanes(const uint8_t* fields, int lane, int lane_count, __m512i subtracted, __m512i most,
                                    __m512i (&words)[group_words]) {
  if constexpr (type.value_bytes == 4) {
    for (int word = 0; word < group_words; ++word) {
      const __m512i bytes = _mm512_loadu_si512(fields + (word * lane_count + lane) * 4);
      words[word] = _mm512_min_epu8(_mm512_sub_epi8(bytes, subtracted), most);
    }
  } else {
    static constexpr auto even = permutation<uint32_t>([](int place) { return 2 * place; });
    static constexpr auto odd = permutation<uint32_t>([](int place) { return 2 * place + 1; });
    for (int pair = 0; pair < group_words / 2; ++pair) {
      const uint8_t* const from = fields + (pair * lane_count + lane) * 8;
      const __m512i low = _mm512_min_epu8(_mm512_sub_epi8(_mm512_loadu_si512(from), subtracted), most);
      const __m512i high = _mm512_min_epu8(_mm512_sub_epi8(_mm512_loadu_si512(from + 64), subtracted), most);
      words[2 * pair] = _mm512_permutex2var_epi32(low, _mm512_load_si512(&even), high);
      words[2 * pair + 1] = _mm512_permutex2var_epi32(low, _mm512_load_si512(&odd), high);
    }
  }
}

template <int width, int row, int word>
STORE_AVX512_INLINE void add_word(const __m512i& fields, __m512i& bits) {
  constexpr Piece piece = piece_of(width, row, word);
  if constexpr (piece.count != 0) {
    __m512i part = fields;
    if constexpr (piece.count != width)
      part = _mm512_and_si512(_mm512_srli_epi32(part, piece.field_bit),
                              _mm512_set1_epi32(static_cast<int>(in_each_byte((1 << piece.count) - 1))));
    bits = _mm512_or_si512(bits, _mm512_slli_epi32(part, piece.row_bit));
  }
}
template <int width, int row, int... word>
STORE_AVX512_INLINE void add_words(const __m512i (&words)[group_words], __m512i& bits,
                                   std::integer_sequence<int, word...>) {
  (add_word<width, row, word>(words[word], bits), ...);
}
template <int width, int row>
STORE_AVX512_INLINE void store_row(const __m512i (&words)[group_words], uint8_t* section, int lane, int lane_count) {
  __m512i bits = _mm512_setzero_si512();
  add_words<width, row>(words, bits, std::make_integer_sequence<int, group_words>{});
  const auto lanes_here = static_cast<__mmask16>(low_ones(std::min(lane_count - lane, 16)));
  _mm512_mask_storeu_epi32(section + (row * lane_count + lane) * 4, lanes_here, bits);
}
template <int width, int... row>
STORE_AVX512_INLINE void store_each_row(const __m512i (&words)[group_words], uint8_t* section, int lane, int lane_count,
                                        std::integer_sequence<int, row...>) {
  (store_row<width, row>(words, section, lane, lane_count), ...);
}

// pack_group() of codec/window/vectorized_rows.h, for the fields of load_lanes().
template <const ValueType& type, int width>
STORE_AVX512 void pack_lanes(const uint8_t* fields, __m512i subtracted, uint8_t* section, int lane_count) {
  const __m512i most = _mm512_set1_epi8((1 << width) - 1);
  for (int lane = 0; lane < lane_count; lane += 16) {
    __m512i words[group_words];
    load_lanes<type>(fields, lane, lane_count, subtracted, most, words);
    store_each_row<width>(words, section, lane, lane_count, std::make_integer_sequence<int, width>{});
  }
}

// The bytes of a group in the order of the escapes, those of two lanes in each vector, from `lane` on. No more than
// group_elems bytes are read.
template <const ValueType& type>
constexpr int lanes_at_once = type.value_bytes == 2 ? 2 : 4;
STORE_AVX512_INLINE __m512i load_quarters(const uint8_t* bytes, int distance) {
  __m512i all = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  all = _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + distance)), 1);
  all = _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * distance)), 2);
  return _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 3 * distance)), 3);
}
template <const ValueType& type>
STORE_AVX512_INLINE void load_in_order(const uint8_t* bytes, int lane, int lane_count,
                                       __m512i (&ordered)[lanes_at_once<type> / 2]) {
  // Place: 32 * lane + 8 * byte + word.
  if constexpr (type.value_bytes == 2) {
    static constexpr auto order = permutation<uint8_t>(
        [](int place) { return place % 8 / 2 * 16 + place / 32 * 8 + place % 2 * 4 + place / 8 % 4; });
    const __m512i pairs = load_quarters(bytes + lane * 8, lane_count * 8);
    ordered[0] = _mm512_permutexvar_epi8(_mm512_load_si512(&order), pairs);
  } else {
    // Bit 6 of an index selects the second vector.
    static constexpr auto first =
        permutation<uint8_t>([](int place) { return place % 8 * 16 + place / 32 * 4 + place / 8 % 4; });
    const __m512i low = load_quarters(bytes + lane * 4, lane_count * 4);
    const __m512i high = load_quarters(bytes + (4 * lane_count + lane) * 4, lane_count * 4);
    const __m512i places = _mm512_load_si512(&first);
    ordered[0] = _mm512_permutex2var_epi8(low, places, high);
    ordered[1] = _mm512_permutex2var_epi8(low, _mm512_add_epi8(places, _mm512_set1_epi8(8)), high);
  }
}

// GroupCoder of window_row.h.
template <const ValueType& type>
class GroupCoder512 {
 public:
  STORE_AVX512 explicit GroupCoder512(const Placement& window)
      : width_(window.width),
        base_(_mm512_set1_epi8(static_cast<char>(window.base))),
        last_(_mm512_set1_epi8(static_cast<char>((1 << window.width) - 1))),
        below_(_mm512_set1_epi8(static_cast<char>(window.base - below_tokens))) {
    // By exponent - (base - below_tokens). Differences that wrap around are those of exponents that do not exist: their
    // tokens are left out.
    static constexpr auto numbers = permutation<uint8_t>([](int place) { return place; });
    const __m512i place = _mm512_load_si512(&numbers);
    const int last = (1 << window.width) - 1, above = below_tokens + last;
    const int above_count = std::min(above_tokens, (1 << type.exponent_bits) - (window.base + last));
    const int first_below = std::max(below_tokens - window.base, 0);
    const __mmask64 is_below = low_ones(below_tokens) & ~low_ones(first_below);
    const __mmask64 is_above = low_ones(above_count) << above;
    tokens_ = _mm512_mask_mov_epi8(_mm512_set1_epi8(far_token), is_below, place);
    tokens_ = _mm512_mask_sub_epi8(tokens_, is_above, place, last_);
  }

  STORE_AVX512 void add(const Scratch<type>& scratch, int lane_count, uint8_t* codes) {
    pack(scratch.exponents, lane_count, codes);
    const __m512i greatest = _mm512_set1_epi8(63), zero = _mm512_set1_epi8(zero_token);
    constexpr int vectors = 4, at_once = lanes_at_once<type>;
    for (int lane = 0; lane < lane_count; lane += 2 * vectors) {
      // Everything is loaded before the escapes are stored: where they go is known late, and CPUs that do not speculate
      // on addresses (for security) load nothing until then.
      __m512i exponents[vectors], tokens[vectors];
      __mmask64 escapes[vectors], far[vectors];
      for (int first = 0; first < vectors; first += at_once / 2) {
        __m512i ordered[at_once / 2];
        load_in_order<type>(scratch.exponents, lane + 2 * first, lane_count, ordered);
        for (int i = 0; i < at_once / 2; ++i) exponents[first + i] = ordered[i];
      }
      for (int i = 0; i < vectors; ++i) {
        const int lanes_here = std::clamp(lane_count - lane - 2 * i, 0, 2);
        escapes[i] =
            _mm512_mask_cmpge_epu8_mask(low_ones(32 * lanes_here), _mm512_sub_epi8(exponents[i], base_), last_);
        const __m512i distance = _mm512_min_epu8(_mm512_sub_epi8(exponents[i], below_), greatest);
        tokens[i] = _mm512_mask_mov_epi8(_mm512_permutexvar_epi8(distance, tokens_),
                                         _mm512_testn_epi8_mask(exponents[i], exponents[i]), zero);
        far[i] = _mm512_mask_cmpeq_epi8_mask(escapes[i], tokens[i], _mm512_set1_epi8(far_token));
      }
      for (int i = 0; i < vectors; ++i) {
        _mm512_storeu_si512(found_ + escaped_, _mm512_maskz_compress_epi8(escapes[i], tokens[i]));
        escaped_ += static_cast<size_t>(std::popcount(escapes[i]));
      }
      if ((far[0] | far[1] | far[2] | far[3]) == 0) continue;
      for (int i = 0; i < vectors; ++i) {
        _mm512_storeu_si512(far_ + far_count_, _mm512_maskz_compress_epi8(far[i], exponents[i]));
        far_count_ += static_cast<size_t>(std::popcount(far[i]));
      }
    }
  }
  size_t escaped() const { return escaped_; }
  size_t far() const { return far_count_; }

  STORE_AVX512 uint8_t* write(uint8_t* to) {
    _mm512_storeu_si512(found_ + escaped_, _mm512_setzero_si512());  // the token after an odd number of them
    const size_t bytes = (escaped_ + 1) / 2;
    for (size_t at = 0; at < bytes; at += 32) {
      const __m512i pairs = _mm512_maddubs_epi16(_mm512_loadu_si512(found_ + 2 * at), _mm512_set1_epi16(0x1001));
      const auto here = static_cast<__mmask32>(low_ones(static_cast<int>(std::min<size_t>(bytes - at, 32))));
      _mm256_mask_storeu_epi8(to + at, here, _mm512_cvtepi16_epi8(pairs));
    }
    std::memcpy(to + bytes, far_, far_count_);
    return to + bytes + far_count_;
  }

 private:
  STORE_AVX512 void pack(const uint8_t* exponents, int lane_count, uint8_t* codes) const {
    switch (width_) {
      case 1: return pack_lanes<type, 1>(exponents, base_, codes, lane_count);
      case 2: return pack_lanes<type, 2>(exponents, base_, codes, lane_count);
      case 3: return pack_lanes<type, 3>(exponents, base_, codes, lane_count);
      case 4: return pack_lanes<type, 4>(exponents, base_, codes, lane_count);
      default: return pack_lanes<type, 5>(exponents, base_, codes, lane_count);
    }
  }

  static constexpr size_t room = max_row_escapes + 1 + group_elems + 64;
  int width_;
  __m512i base_, last_, below_, tokens_;
  size_t escaped_ = 0, far_count_ = 0;
  alignas(64) uint8_t found_[room];
  alignas(64) uint8_t far_[room];
};

// The path of window_path.inc.
struct Path512 {
  template <const ValueType& type>
  using Coder = GroupCoder512<type>;
  template <const ValueType& type>
  STORE_AVX512 static Placement place(const uint8_t* sample, size_t count) {
    return place_bytes<type>(sample, static_cast<int>(count));
  }
  template <const ValueType& type, int width>
  STORE_AVX512 static void pack(const uint8_t* fields, uint8_t* section, uint32_t* /*escapes*/, int lane_count) {
    pack_lanes<type, width>(fields, _mm512_setzero_si512(), section, lane_count);
  }
};

template <const ValueType& type, bool trimmed>
STORE_AVX512 size_t encode_one(const Model& model, const uint8_t* values, size_t elems, uint8_t* body, size_t room,
                               uint32_t* header) {
  const WindowLayout layout = window_layout(model.shape.dtype, model.trim.low_bits);
  if (model.trim.low_bits != 0 && !follow_trim<type>(values, elems, model.trim)) return room;
  return encode_values<Path512, type, trimmed>(layout, values, elems, body, room, header);
}

// Returns NULL for types of other sizes.
decltype(ValuesCoder::encode) encoder_of(ncast_dtype dtype, bool trimmed) {
  switch (dtype) {
    case NCAST_BFLOAT16: return encode_one<bfloat16, false>;
    case NCAST_FLOAT16: return trimmed ? encode_one<float16, true> : encode_one<float16, false>;
    case NCAST_FLOAT32: return encode_one<float32, false>;
    default: return nullptr;
  }
}

}  // namespace
}  // namespace narrowcast::store::window
