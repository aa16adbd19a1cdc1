// The codec `dense` with AVX2 and BMI2. Produces the same bytes as reference.cc. Planes are made and read a lane at a
// time; the bits that only some values have are collected with pext and distributed with pdep.
#if defined(__x86_64__)
#include "codec/dense/avx2.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

// Every function has the instruction set, so that they are inlined into each other. A lambda would not have it.
#define AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))

namespace narrowcast::codec::dense {
namespace {

template <const ValueType& type>
using Bits = std::conditional_t<
    type.value_bytes == 1, uint8_t,
    std::conditional_t<type.value_bytes == 2, uint16_t, std::conditional_t<type.value_bytes == 4, uint32_t, uint64_t>>>;
template <const ValueType& type>
using Exponent = std::conditional_t<(type.exponent_bits > 8), uint16_t, uint8_t>;

template <const ValueType& type>
AVX2 inline Bits<type> bits_at(const uint8_t* values, int index) {
  Bits<type> bits;
  std::memcpy(&bits, values + index * type.value_bytes, sizeof bits);
  return bits;
}
AVX2 inline uint64_t load64(const uint8_t* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}
AVX2 inline uint32_t load32(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}
AVX2 inline void store32(uint8_t* to, uint32_t word) { std::memcpy(to, &word, sizeof word); }

template <const ValueType& type>
constexpr Bits<type> mantissa_mask = static_cast<Bits<type>>((uint64_t{1} << type.mantissa_bits()) - 1);

// Sign and mantissa.
template <const ValueType& type>
AVX2 inline Bits<type> rest_of(Bits<type> bits) {
  const auto sign = static_cast<Bits<type>>(bits >> (8 * type.value_bytes - 1));
  return static_cast<Bits<type>>((bits & mantissa_mask<type>) | static_cast<Bits<type>>(sign << type.mantissa_bits()));
}

// The bytes of a lane's 32 values. group: a byte for each value.
template <const ValueType& type>
AVX2 inline __m256i load_lane(const uint8_t* group, int lane) {
  constexpr int run = type.vector_elems();
  const uint8_t* from = group + lane * run;
  if constexpr (run == 16) {
    return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(from + lanes * run),
                               reinterpret_cast<const __m128i*>(from));
  } else if constexpr (run == 8) {
    const uint8_t* rows[4] = {from, from + lanes * run, from + 2 * lanes * run, from + 3 * lanes * run};
    return _mm256_setr_epi64x(static_cast<long long>(load64(rows[0])), static_cast<long long>(load64(rows[1])),
                              static_cast<long long>(load64(rows[2])), static_cast<long long>(load64(rows[3])));
  } else {
    uint64_t words[4];
    for (int word = 0; word < 4; ++word) {
      words[word] = 0;
      for (int i = 0; i < 8 / run; ++i) {
        const uint8_t* row = from + (word * (8 / run) + i) * lanes * run;
        uint64_t part;
        if constexpr (run == 4)
          part = load32(row);
        else
          part = static_cast<uint64_t>(row[0] | row[1] << 8);
        words[word] |= part << (8 * run * i);
      }
    }
    return _mm256_setr_epi64x(static_cast<long long>(words[0]), static_cast<long long>(words[1]),
                              static_cast<long long>(words[2]), static_cast<long long>(words[3]));
  }
}
template <const ValueType& type>
AVX2 inline void store_lane(__m256i of_lane, uint8_t* group, int lane) {
  constexpr int run = type.vector_elems();
  alignas(32) uint8_t bytes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), of_lane);
  for (int i = 0; i < 32 / run; ++i) std::memcpy(group + (i * lanes + lane) * run, bytes + i * run, run);
}

// Bit `bit` of each byte.
AVX2 inline uint32_t plane_of(__m256i bytes, int bit) {
  return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_sll_epi16(bytes, _mm_cvtsi32_si128(7 - bit))));
}
// All bits of byte i are bit i of `plane`.
AVX2 inline __m256i spread(uint32_t plane) {
  const __m256i copies = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(plane)),
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  const __m256i own = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  return _mm256_cmpeq_epi8(_mm256_and_si256(copies, own), own);
}

// Which values have an extra bit.
AVX2 inline uint32_t with_extra_bit(const Code& code, uint32_t low, uint32_t high) {
  const uint32_t first = code.single == 0 ? ~0u : code.single == 1 ? low | high : code.single == 2 ? high : 0;
  return first & ~(low & high);
}

// Appends bits to memory, up to 56 at a time. Writes up to 8 bytes after the last one.
class BitSink {
 public:
  AVX2 explicit BitSink(uint8_t* to) : begin_(to), to_(to) {}
  AVX2 void put(uint64_t bits, int count) {
    held_ |= bits << fill_;
    fill_ += count;
    std::memcpy(to_, &held_, sizeof held_);
    to_ += fill_ / 8;
    held_ >>= fill_ / 8 * 8;
    fill_ %= 8;
  }
  AVX2 void append(const BitSink& other) {
    const int bits = other.count();
    for (int at = 0; at < bits; at += 56) {
      const int count = std::min(bits - at, 56);
      put(_bzhi_u64(load64(other.begin_ + at / 8), static_cast<unsigned>(count)), count);
    }
  }
  AVX2 int count() const { return static_cast<int>(to_ - begin_) * 8 + fill_; }

 private:
  uint8_t* begin_;
  uint8_t* to_;
  uint64_t held_ = 0;
  int fill_ = 0;
};

constexpr int most_group_bits = group_elems + most_escapes * (1 + 17);  // extra bits, pair bits and ones

// The encoder's rule in docs/format/dense.md. exponents: of the group.
template <const ValueType& type>
AVX2 GroupHeader choose(const Exponent<type>* exponents, bool zero_first) {
  int anchor = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    int least = type.exponent_mask() + 1;
    for (int i = 0; i < anchor_samples; ++i) {
      const int exponent = exponents[index_in_group(type, lane, 9 * i)];
      least = std::min(least, exponent == 0 ? type.exponent_mask() + 1 : exponent);
    }
    anchor = std::max(anchor, least > type.exponent_mask() ? 0 : least);
  }
  const auto lowest = static_cast<uint16_t>(std::max(anchor - bins_below_anchor, 0));

  // Exponents outside the bins are counted in an extra one, and zeros in another one if they have a rank of their own.
  uint8_t bin_of[group_elems];
  const int bin_of_zero = zero_first ? bins + 1 : lowest == 0 ? 0 : bins;
  for (int i = 0; i < group_elems; ++i) {
    const auto bin = std::min<uint16_t>(static_cast<uint16_t>(exponents[i] - lowest), bins);
    bin_of[i] = static_cast<uint8_t>(exponents[i] == 0 ? bin_of_zero : bin);
  }
  // Several histograms: neighbours often share a bin, and their increments would wait for each other.
  constexpr int copies = 8;
  uint16_t histograms[copies][bins + 2] = {};
  for (int i = 0; i < group_elems; i += copies)
    for (int j = 0; j < copies; ++j) ++histograms[j][bin_of[i + j]];
  constexpr int margin = most_ranks;
  uint16_t histogram[margin + bins + margin] = {};
  int mode = 0;
  for (int bin = 0; bin < bins; ++bin) {
    int count = 0;
    for (int j = 0; j < copies; ++j) count += histograms[j][bin];
    histogram[margin + bin] = static_cast<uint16_t>(count);
    if (count > histogram[margin + mode]) mode = bin;
  }
  uint16_t zeros = 0;
  for (int j = 0; j < copies; ++j) zeros = static_cast<uint16_t>(zeros + histograms[j][bins + 1]);

  // after[rank]: for each order, the values with this rank or a higher one. All orders are evaluated side by side.
  constexpr int parts = orders / 16;
  __m256i after[most_ranks + 1][parts];
  const uint16_t* at_mode = histogram + margin + mode;
  for (__m256i& part : after[0]) part = _mm256_set1_epi16(group_elems);
  for (int rank = 0; rank < most_ranks; ++rank) {
    alignas(32) uint16_t with_rank[orders];
    const auto& offset = rank_offsets[static_cast<size_t>(zero_first && rank > 0 ? rank - 1 : rank)];
    for (int order = 0; order < orders; ++order)
      with_rank[order] = zero_first && rank == 0 ? zeros : at_mode[offset[static_cast<size_t>(order)]];
    for (int part = 0; part < parts; ++part)
      after[rank + 1][part] = _mm256_sub_epi16(
          after[rank][part], _mm256_load_si256(reinterpret_cast<const __m256i*>(with_rank + 16 * part)));
  }
  // The first code of least cost for each order, then the first order of least cost.
  alignas(32) uint16_t least_cost[orders], best_code[orders];
  for (int part = 0; part < parts; ++part) {
    __m256i least = _mm256_set1_epi16(-1), best = _mm256_setzero_si256();
    for (int number = 0; number < codes; ++number) {
      const Code code = code_of(number);
      const int first = code.digit_ranks();
      __m256i cost = _mm256_add_epi16(_mm256_set1_epi16(2 * group_elems), after[code.single][part]);
      if (code.paired != 0) cost = _mm256_add_epi16(cost, after[first][part]);
      cost = _mm256_add_epi16(cost, _mm256_slli_epi16(after[code.ranks()][part], 3));
      for (int ones = 1; ones <= code.far_ones(); ++ones)
        cost = _mm256_add_epi16(cost, after[first + (ones << code.paired)][part]);
      const __m256i lower = _mm256_min_epu16(cost, least);
      const __m256i same = _mm256_cmpeq_epi16(lower, least);
      best = _mm256_blendv_epi8(_mm256_set1_epi16(static_cast<short>(number)), best, same);
      least = lower;
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(least_cost + 16 * part), least);
    _mm256_store_si256(reinterpret_cast<__m256i*>(best_code + 16 * part), best);
  }
  const auto order = static_cast<int>(std::min_element(least_cost, least_cost + orders) - least_cost);
  const int number = best_code[order];
  return {code_of(number), number, order, std::min(lowest + mode, type.exponent_mask())};
}

// How each exponent is written: the digit in bits 0 and 1, extra or pair bit in bit 2, the number of ones above.
constexpr int extra_bit = 2, ones_shift = 3;
template <const ValueType& type>
using Words = std::array<uint8_t, size_t{1} << type.exponent_bits>;

template <const ValueType& type>
AVX2 void make_words(const GroupHeader& group, bool zero_first, Words<type>& words) {
  const Code& code = group.code;
  words.fill(static_cast<uint8_t>(3 | code.far_ones() << ones_shift));
  for (int rank = code.ranks() - 1; rank >= 0; --rank) {
    int exponent = 0;
    if (!zero_first || rank > 0)
      exponent = group.base +
                 rank_offsets[static_cast<size_t>(zero_first ? rank - 1 : rank)][static_cast<size_t>(group.order)];
    if (exponent < 0 || exponent > type.exponent_mask()) continue;
    const int after = rank - code.digit_ranks(), doubled = rank - code.single;
    int word;
    if (doubled < 0)
      word = rank;
    else if (after < 0)
      word = (code.single + doubled / 2) | doubled % 2 << extra_bit;
    else if (code.paired != 0)
      word = 3 | after % 2 << extra_bit | after / 2 << ones_shift;
    else
      word = 3 | after << ones_shift;
    words[static_cast<size_t>(exponent)] = static_cast<uint8_t>(word);
  }
}

// The positions of exponents without a rank, in order.
template <const ValueType& type>
struct Far {
  uint8_t position[type.block_elems()];
  int count = 0;
};

// Writes the digits of a group to `digits` and its other bits to `stream`. Returns false if they cannot be written.
template <const ValueType& type>
AVX2 bool encode_group(const Exponent<type>* exponents, const GroupHeader& group, bool zero_first, uint8_t* digits,
                       BitSink& stream, Far<type>& far) {
  Words<type> words;
  make_words<type>(group, zero_first, words);
  alignas(32) uint8_t coded[group_elems];
  int escapes = 0;
  for (int i = 0; i < group_elems; ++i) coded[i] = words[exponents[i]];
  for (int i = 0; i < group_elems; ++i) escapes += (coded[i] & 3) == 3;
  if (escapes > most_escapes) return false;

  uint8_t pair_bytes[most_escapes / 8 + 16], ones_bytes[most_escapes * 17 / 8 + 16];
  BitSink pairs(pair_bytes), ones(ones_bytes);
  uint64_t held = 0;  // ones that have not been put yet: fewer than 32 bits between values
  int held_bits = 0;
  const int far_ones = group.code.far_ones();
  for (int lane = 0; lane < lanes; ++lane) {
    const __m256i bytes = load_lane<type>(coded, lane);
    const uint32_t low = plane_of(bytes, 0), high = plane_of(bytes, 1), extra = plane_of(bytes, extra_bit);
    store32(digits + lane * 4, low);
    store32(digits + plane_bytes + lane * 4, high);
    const uint32_t has_extra = with_extra_bit(group.code, low, high);
    stream.put(_pext_u32(extra, has_extra), std::popcount(has_extra));
    uint32_t left = low & high;
    if (group.code.paired != 0) pairs.put(_pext_u32(extra, left), std::popcount(left));
    alignas(32) uint8_t word[32];
    _mm256_store_si256(reinterpret_cast<__m256i*>(word), bytes);
    for (; left != 0; left &= left - 1) {
      const int bit = std::countr_zero(left), count = word[bit] >> ones_shift;
      held |= ((uint64_t{1} << count) - 1) << held_bits;
      held_bits += count + 1;
      if (held_bits >= 32) {
        ones.put(held, held_bits);
        held = 0, held_bits = 0;
      }
      if (count != far_ones) continue;
      const int exponent = exponents[index_in_group(type, lane, bit)];
      const int position = position_of(type, group.base, exponent);
      if (position < 0) return false;
      far.position[far.count++] = static_cast<uint8_t>(position);
    }
  }
  ones.put(held, held_bits);
  stream.append(pairs);
  stream.append(ones);
  return true;
}

template <const ValueType& type>
AVX2 size_t store_raw(const uint8_t* values, uint8_t* payload) {
  std::memcpy(payload, values, type.block_bytes());
  return type.block_bytes();
}

template <const ValueType& type>
AVX2 size_t encode_block(const uint8_t* values, uint8_t* payload) {
  constexpr int elems = type.block_elems();
  alignas(32) Exponent<type> exponents[elems];
  Bits<type> any = 0;
  int zeros = 0;
  for (int i = 0; i < elems; ++i) {
    const Bits<type> bits = bits_at<type>(values, i);
    exponents[i] = static_cast<Exponent<type>>(bits >> type.mantissa_bits() & type.exponent_mask());
    any |= bits;
  }
  for (int i = 0; i < elems; ++i) zeros += exponents[i] == 0;

  PayloadHeader header;
  const int trim = std::countr_zero(static_cast<uint64_t>(any) | uint64_t{1} << type.mantissa_bits());
  header.kept = type.rest_bits() - trim;
  header.zero_first = zeros * zeros_per_block > elems;
  uint8_t digits[2 * type.groups() * plane_bytes];
  uint8_t stream_bytes[type.groups() * most_group_bits / 8 + 16];
  BitSink stream(stream_bytes);
  Far<type> far;
  for (int group = 0; group < type.groups(); ++group) {
    const Exponent<type>* of_group = exponents + group * group_elems;
    header.groups[group] = choose<type>(of_group, header.zero_first);
    if (!encode_group<type>(of_group, header.groups[group], header.zero_first, digits + 2 * group * plane_bytes, stream,
                            far))
      return store_raw<type>(values, payload);
  }
  const int bytes = type.payload_bytes(header.kept, stream.count(), far.count);
  if (bytes >= type.block_bytes()) return store_raw<type>(values, payload);

  const int columns = header.kept / 8, planes = header.kept % 8;
  for (int column = 0; column < columns; ++column) {
    const int shift = trim + 8 * column;
    for (int i = 0; i < elems; ++i)
      payload[column * elems + i] = static_cast<uint8_t>(rest_of<type>(bits_at<type>(values, i)) >> shift);
  }
  if (planes != 0) {
    alignas(32) uint8_t upper[elems];
    const int shift = trim + 8 * columns;
    for (int i = 0; i < elems; ++i) upper[i] = static_cast<uint8_t>(rest_of<type>(bits_at<type>(values, i)) >> shift);
    uint8_t* to = payload + type.plane_offset(header.kept);
    for (int group = 0; group < type.groups(); ++group, to += planes * plane_bytes)
      for (int lane = 0; lane < lanes; ++lane) {
        const __m256i lane_bytes = load_lane<type>(upper + group * group_elems, lane);
        for (int plane = 0; plane < planes; ++plane)
          store32(to + plane * plane_bytes + lane * 4, plane_of(lane_bytes, plane));
      }
  }
  std::memcpy(payload + type.digit_offset(header.kept), digits, sizeof digits);
  const int stream_offset = type.stream_offset(header.kept), stream_size = (stream.count() + 7) / 8;
  std::memcpy(payload + stream_offset, stream_bytes, static_cast<size_t>(stream_size));
  uint8_t* end = payload + bytes - type.header_bytes();
  uint8_t* const padding = payload + stream_offset + stream_size;
  std::memset(padding, 0, static_cast<size_t>(end - far.count - padding));
  for (int i = 0; i < far.count; ++i) *--end = far.position[i];
  write_payload_header(type, header, payload, static_cast<size_t>(bytes));
  return static_cast<size_t>(bytes);
}

// The stream of a payload with zeros after it, which is read without bounds checks. A caller that has read after the
// end finds out from the size of what it has read.
template <const ValueType& type>
struct Stream {
  uint8_t bytes[type.block_bytes() + 512];
  int at = 0;  // the next bit

  AVX2 uint64_t peek() const { return load64(bytes + at / 8) >> at % 8; }  // at least 56 bits
};

// Reads `count` numbers in unary. One bit at `at` before the first.
template <const ValueType& type>
AVX2 bool read_ones(Stream<type>& stream, int count, int most, uint8_t* ones) {
  int number = 0, previous = -1;
  uint8_t largest = 0;
  for (int base = 0; number < count; base += 56) {
    uint64_t zeros =
        ~(load64(stream.bytes + (stream.at + base) / 8) >> (stream.at + base) % 8) & ((uint64_t{1} << 56) - 1);
    for (; zeros != 0 && number < count; zeros &= zeros - 1) {
      const int place = base + std::countr_zero(zeros);
      ones[number++] = static_cast<uint8_t>(std::min(place - previous - 1, 255));
      previous = place;
    }
    if (base - previous > 2 * 56) return false;
  }
  for (int i = 0; i < count; ++i) largest = std::max(largest, ones[i]);
  stream.at += previous + 1;
  return largest <= most;
}

// Reads the digits of a group and its part of the stream. positions: in value order.
template <const ValueType& type>
AVX2 bool decode_group(const PayloadHeader& header, const GroupHeader& group, const uint8_t* digits,
                       Stream<type>& stream, int stream_limit, const uint8_t* far_end, int* far, uint8_t* positions) {
  const Code& code = group.code;
  // By digit and extra bit. Digit 3 has zeros.
  uint8_t of_digit[16] = {}, of_rest[16];
  for (int digit = 0; digit < 3; ++digit)
    for (int extra = 0; extra < 2; ++extra) {
      const int rank = digit < code.single ? digit : code.single + 2 * (digit - code.single) + extra;
      of_digit[2 * digit + extra] = static_cast<uint8_t>(header.position(type, group, rank));
    }
  for (int i = 0; i < 16; ++i) of_rest[i] = static_cast<uint8_t>(header.position(type, group, code.digit_ranks() + i));

  uint32_t extras[lanes];
  int escapes = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    const uint32_t low = load32(digits + lane * 4), high = load32(digits + plane_bytes + lane * 4);
    const uint32_t has_extra = with_extra_bit(code, low, high);
    extras[lane] = _pdep_u32(static_cast<uint32_t>(stream.peek()), has_extra);
    stream.at += std::popcount(has_extra);
    escapes += std::popcount(low & high);
  }
  if (escapes > most_escapes) return false;

  alignas(32) uint8_t rest[most_escapes + 32] = {};
  const int pairs_at = stream.at;
  if (code.paired != 0) stream.at += escapes;
  if (stream.at > stream_limit) return false;
  if (!read_ones(stream, escapes, code.far_ones(), rest) || stream.at > stream_limit) return false;
  const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(of_rest)));
  for (int i = 0; i < escapes; i += 32) {
    auto* const at = reinterpret_cast<__m256i*>(rest + i);
    __m256i index = _mm256_load_si256(at);
    if (code.paired != 0) {
      const int bit = pairs_at + i;
      const __m256i pair = spread(static_cast<uint32_t>(load64(stream.bytes + bit / 8) >> bit % 8));
      index = _mm256_sub_epi8(_mm256_add_epi8(index, index), pair);
    }
    const __m256i is_far = _mm256_cmpgt_epi8(index, _mm256_set1_epi8(15));
    _mm256_store_si256(at, _mm256_shuffle_epi8(table, index));
    auto left = static_cast<uint32_t>(_mm256_movemask_epi8(is_far));
    if (escapes - i < 32) left = _bzhi_u32(left, static_cast<unsigned>(escapes - i));
    for (; left != 0; left &= left - 1) {
      if (far_end - ++*far < stream.bytes) return false;
      rest[i + std::countr_zero(left)] = far_end[-*far];
    }
  }

  const __m256i of_digits = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(of_digit)));
  const uint8_t* next = rest;
  for (int lane = 0; lane < lanes; ++lane) {
    const uint32_t low = load32(digits + lane * 4), high = load32(digits + plane_bytes + lane * 4);
    const __m256i index = _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(spread(high), _mm256_set1_epi8(4)),
                                                          _mm256_and_si256(spread(low), _mm256_set1_epi8(2))),
                                          _mm256_and_si256(spread(extras[lane]), _mm256_set1_epi8(1)));
    uint64_t escaped[4];
    const uint32_t both = low & high;
    for (int i = 0; i < 4; ++i) {
      const uint64_t mask = _pdep_u64(both >> 8 * i & 0xff, 0x0101010101010101) * 0xff;
      escaped[i] = _pdep_u64(load64(next), mask);
      next += std::popcount(both >> 8 * i & 0xff);
    }
    const __m256i all =
        _mm256_or_si256(_mm256_shuffle_epi8(of_digits, index),
                        _mm256_setr_epi64x(static_cast<long long>(escaped[0]), static_cast<long long>(escaped[1]),
                                           static_cast<long long>(escaped[2]), static_cast<long long>(escaped[3])));
    store_lane<type>(all, positions, lane);
  }
  return true;
}

// Joins positions, columns and the values of the planes.
template <const ValueType& type, int columns>
AVX2 void join_columns(const PayloadHeader& header, const uint8_t* payload, const uint8_t* positions,
                       const uint8_t* upper, uint8_t* values) {
  constexpr int elems = type.block_elems();
  const int trim = type.rest_bits() - header.kept;
  for (int group = 0; group < type.groups(); ++group) {
    const auto base = static_cast<uint16_t>(header.groups[group].base);
    for (int i = group * group_elems; i < (group + 1) * group_elems; ++i) {
      Bits<type> rest = 0;
      for (int column = 0; column < columns; ++column)
        rest |= static_cast<Bits<type>>(static_cast<Bits<type>>(payload[column * elems + i]) << 8 * column);
      if constexpr (8 * columns < type.rest_bits())
        rest |= static_cast<Bits<type>>(static_cast<Bits<type>>(upper[i]) << 8 * columns);
      rest = static_cast<Bits<type>>(rest << trim);
      Exponent<type> exponent;
      if constexpr (type.exponent_bits <= 8) {
        exponent = static_cast<Exponent<type>>((base + positions[i]) & type.exponent_mask());
      } else {
        const auto near = static_cast<uint16_t>((base + (positions[i] ^ 128) - 128) & type.exponent_mask());
        exponent = positions[i] == zero_position ? uint16_t{0} : near;
      }
      const auto sign = static_cast<Bits<type>>(rest >> type.mantissa_bits());
      const auto bits =
          static_cast<Bits<type>>(static_cast<Bits<type>>(sign << (8 * type.value_bytes - 1)) |
                                  static_cast<Bits<type>>(static_cast<Bits<type>>(exponent) << type.mantissa_bits()) |
                                  (rest & mantissa_mask<type>));
      std::memcpy(values + i * type.value_bytes, &bits, sizeof bits);
    }
  }
}

template <const ValueType& type, int columns = 0>
AVX2 void join(const PayloadHeader& header, const uint8_t* payload, const uint8_t* positions, const uint8_t* upper,
               uint8_t* values) {
  if (header.kept / 8 == columns)
    join_columns<type, columns>(header, payload, positions, upper, values);
  else if constexpr (8 * (columns + 1) <= type.rest_bits())
    join<type, columns + 1>(header, payload, positions, upper, values);
}

template <const ValueType& type>
AVX2 bool decode_block(const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  if (payload_bytes == static_cast<size_t>(type.block_bytes())) {
    std::memcpy(values, payload, payload_bytes);
    return true;
  }
  PayloadHeader header;
  if (!read_payload_header(type, payload, payload_bytes, &header)) return false;
  const int stream_offset = type.stream_offset(header.kept);
  const int stream_bytes = static_cast<int>(payload_bytes) - type.header_bytes() - stream_offset;
  Stream<type> stream;
  std::memcpy(stream.bytes, payload + stream_offset, static_cast<size_t>(stream_bytes));
  std::memset(stream.bytes + stream_bytes, 0, sizeof stream.bytes - static_cast<size_t>(type.block_bytes()));

  alignas(32) uint8_t positions[type.block_elems()];
  int far = 0;
  for (int group = 0; group < type.groups(); ++group)
    if (!decode_group<type>(header, header.groups[group],
                            payload + type.digit_offset(header.kept) + 2 * group * plane_bytes, stream,
                            8 * stream_bytes, stream.bytes + stream_bytes, &far, positions + group * group_elems))
      return false;
  if (payload_bytes != static_cast<size_t>(type.payload_bytes(header.kept, stream.at, far))) return false;

  alignas(32) uint8_t upper[type.block_elems()];
  const int planes = header.kept % 8;
  if (planes == 0) std::memset(upper, 0, sizeof upper);
  const uint8_t* from = payload + type.plane_offset(header.kept);
  for (int group = 0; planes != 0 && group < type.groups(); ++group, from += planes * plane_bytes)
    for (int lane = 0; lane < lanes; ++lane) {
      __m256i bytes = _mm256_setzero_si256();
      for (int plane = 0; plane < planes; ++plane)
        bytes = _mm256_or_si256(bytes, _mm256_and_si256(spread(load32(from + plane * plane_bytes + lane * 4)),
                                                        _mm256_set1_epi8(static_cast<char>(1 << plane))));
      store_lane<type>(bytes, upper + group * group_elems, lane);
    }
  join<type>(header, payload, positions, upper, values);
  return true;
}

size_t encode_any(const ValueType& type, const uint8_t* values, uint8_t* payload) {
  switch (type.value_bytes << 4 | type.exponent_bits) {
    case 0x28: return encode_block<bfloat16>(values, payload);
    case 0x25: return encode_block<float16>(values, payload);
    case 0x48: return encode_block<float32>(values, payload);
    case 0x8b: return encode_block<float64>(values, payload);
    case 0x14: return encode_block<float8_e4m3>(values, payload);
    default: return encode_block<float8_e5m2>(values, payload);
  }
}
bool decode_any(const ValueType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  switch (type.value_bytes << 4 | type.exponent_bits) {
    case 0x28: return decode_block<bfloat16>(payload, payload_bytes, values);
    case 0x25: return decode_block<float16>(payload, payload_bytes, values);
    case 0x48: return decode_block<float32>(payload, payload_bytes, values);
    case 0x8b: return decode_block<float64>(payload, payload_bytes, values);
    case 0x14: return decode_block<float8_e4m3>(payload, payload_bytes, values);
    default: return decode_block<float8_e5m2>(payload, payload_bytes, values);
  }
}

}  // namespace

const BlockCoder avx2{encode_any, decode_any};

}  // namespace narrowcast::codec::dense
#endif
