// The codec `dense` as specified in docs/format/dense.md, one value at a time. It is the oracle for the other
// implementations, so it shares their constants and the header but none of their code.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "codec/dense/block.h"

namespace narrowcast::codec::dense {
namespace {

struct Parts {
  int exponent;
  uint64_t rest;  // the sign above the mantissa
};

Parts split_value(const ValueType& type, const uint8_t* values, int index) {
  uint64_t bits = 0;
  std::memcpy(&bits, values + index * type.value_bytes, static_cast<size_t>(type.value_bytes));
  const uint64_t sign = bits >> (8 * type.value_bytes - 1);
  const uint64_t mantissa = bits & ((uint64_t{1} << type.mantissa_bits()) - 1);
  return {static_cast<int>(bits >> type.mantissa_bits()) & type.exponent_mask(),
          sign << type.mantissa_bits() | mantissa};
}

void join_value(const ValueType& type, const Parts& parts, uint8_t* values, int index) {
  const uint64_t sign = parts.rest >> type.mantissa_bits();
  const uint64_t mantissa = parts.rest & ((uint64_t{1} << type.mantissa_bits()) - 1);
  const uint64_t bits =
      sign << (8 * type.value_bytes - 1) | static_cast<uint64_t>(parts.exponent) << type.mantissa_bits() | mantissa;
  std::memcpy(values + index * type.value_bytes, &bits, static_cast<size_t>(type.value_bytes));
}

// Visits the values of a group in the order of planes and stream: visit(index in the block, lane, bit).
template <typename Visit>
void for_each_value(const ValueType& type, int group, Visit visit) {
  for (int lane = 0; lane < lanes; ++lane)
    for (int bit = 0; bit < 32; ++bit) visit(group * group_elems + index_in_group(type, lane, bit), lane, bit);
}

// The byte of a plane, and the bit in it, that belongs to bit `bit` of the word of `lane`.
uint8_t& plane_byte(uint8_t* plane, int lane, int bit) { return plane[lane * 4 + bit / 8]; }

class BitWriter {
 public:
  explicit BitWriter(uint8_t* to) : to_(to) {}
  void put(int bit) {
    to_[count_ / 8] = static_cast<uint8_t>(to_[count_ / 8] | bit << count_ % 8);
    ++count_;
  }

 private:
  uint8_t* to_;
  size_t count_ = 0;
};

class BitReader {
 public:
  BitReader(const uint8_t* from, size_t bytes) : from_(from), bits_(8 * bytes) {}
  // 0 after the end.
  int get() {
    const size_t at = count_++;
    return at < bits_ ? from_[at / 8] >> at % 8 & 1 : 0;
  }
  size_t count() const { return count_; }  // of the bits that were asked for
  bool ended() const { return count_ > bits_; }

 private:
  const uint8_t* from_;
  size_t bits_, count_ = 0;
};

size_t store_raw(const ValueType& type, const uint8_t* values, uint8_t* payload) {
  std::memcpy(payload, values, static_cast<size_t>(type.block_bytes()));
  return static_cast<size_t>(type.block_bytes());
}

// A rank of a code as it is written.
struct Word {
  int digit;
  int ones;   // of digit 3
  int extra;  // the extra bit or the pair bit
};
Word word_of(const Code& code, int rank) {
  if (rank < code.single) return {rank, 0, 0};
  if (rank < code.digit_ranks()) return {code.single + (rank - code.single) / 2, 0, (rank - code.single) % 2};
  if (rank >= code.ranks()) return {3, code.far_ones(), 0};
  const int after = rank - code.digit_ranks();
  return code.paired ? Word{3, after / 2, after % 2} : Word{3, after, 0};
}
int bits_of(const Code& code, const Word& word) {
  if (word.digit == 3) return 2 + code.paired + word.ones + 1;
  return word.digit < code.single ? 2 : 3;
}

// The cheapest base, order and code by a histogram of the group's exponents, in 32 bins around their centre.
GroupHeader choose(const ValueType& type, const uint8_t* values, int group, bool zero_first) {
  const auto exponent_of = [&](int lane, int sequence) {
    return split_value(type, values, group * group_elems + index_in_group(type, lane, sequence)).exponent;
  };
  // The largest of the lanes' least samples: a few outliers on either side do not change it.
  int anchor = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    int least = type.exponent_mask() + 1;
    for (int i = 0; i < anchor_samples; ++i) {
      const int exponent = exponent_of(lane, 9 * i);
      if (exponent != 0) least = std::min(least, exponent);
    }
    if (least <= type.exponent_mask()) anchor = std::max(anchor, least);
  }
  const int lowest = std::max(anchor - bins_below_anchor, 0);
  std::array<int, bins> histogram{};
  int zeros = 0;
  for (int lane = 0; lane < lanes; ++lane)
    for (int sequence = 0; sequence < 32; ++sequence) {
      const int exponent = exponent_of(lane, sequence);
      if (zero_first && exponent == 0)
        ++zeros;
      else if (exponent >= lowest && exponent < lowest + bins)
        ++histogram[static_cast<size_t>(exponent - lowest)];
    }
  const int mode = static_cast<int>(std::max_element(histogram.begin(), histogram.end()) - histogram.begin());

  GroupHeader best{};
  int best_cost = 1 << 30;
  for (int order = 0; order < orders; ++order)
    for (int number = 0; number < codes; ++number) {
      const Code code = code_of(number);
      int cost = 0, left = group_elems;
      for (int rank = 0; rank < code.ranks(); ++rank) {
        int count = zeros;
        if (!zero_first || rank > 0) {
          const int bin = mode + rank_offset(order_bits[order], zero_first ? rank - 1 : rank);
          count = bin >= 0 && bin < bins ? histogram[static_cast<size_t>(bin)] : 0;
        }
        cost += count * bits_of(code, word_of(code, rank));
        left -= count;
      }
      cost += left * (bits_of(code, word_of(code, code.ranks())) + 8);
      if (cost < best_cost) {
        best_cost = cost;
        best = {code, number, order, std::min(lowest + mode, type.exponent_mask())};
      }
    }
  return best;
}

// The rank of an exponent, or code.ranks() if it has none.
int rank_of(const PayloadHeader& header, const GroupHeader& group, int exponent) {
  for (int rank = 0; rank < group.code.ranks(); ++rank) {
    if (header.zero_first && rank == 0) {
      if (exponent == 0) return 0;
    } else if (group.base + rank_offset(order_bits[group.order], header.zero_first ? rank - 1 : rank) == exponent) {
      return rank;
    }
  }
  return group.code.ranks();
}

size_t encode(const ValueType& type, const uint8_t* values, uint8_t* payload) {
  PayloadHeader header;
  int zeros = 0;
  uint64_t mantissas = 0;
  for (int index = 0; index < type.block_elems(); ++index) {
    const Parts parts = split_value(type, values, index);
    zeros += parts.exponent == 0;
    mantissas |= parts.rest;
  }
  int trim = 0;
  while (trim < type.mantissa_bits() && (mantissas >> trim & 1) == 0) ++trim;
  header.kept = type.rest_bits() - trim;
  header.zero_first = zeros * zeros_per_block > type.block_elems();

  int stream_bits = 0, far = 0;
  std::vector<Word> words(static_cast<size_t>(type.block_elems()));
  std::vector<uint8_t> far_positions;
  for (int group = 0; group < type.groups(); ++group) {
    const GroupHeader& chosen = header.groups[group] = choose(type, values, group, header.zero_first);
    int escapes = 0;
    bool codable = true;
    for_each_value(type, group, [&](int index, int, int) {
      const int exponent = split_value(type, values, index).exponent;
      const int rank = rank_of(header, chosen, exponent);
      const Word word = words[static_cast<size_t>(index)] = word_of(chosen.code, rank);
      stream_bits += bits_of(chosen.code, word) - 2;
      escapes += word.digit == 3;
      if (rank < chosen.code.ranks()) return;
      ++far;
      const int position = position_of(type, chosen.base, exponent);
      codable = codable && position >= 0;
      far_positions.push_back(static_cast<uint8_t>(position));
    });
    if (escapes > most_escapes || !codable) return store_raw(type, values, payload);
  }
  const int bytes = type.payload_bytes(header.kept, stream_bits, far);
  if (bytes >= type.block_bytes()) return store_raw(type, values, payload);

  std::memset(payload, 0, static_cast<size_t>(bytes));
  for (int index = 0; index < type.block_elems(); ++index) {
    const uint64_t rest = split_value(type, values, index).rest >> trim;
    for (int column = 0; column < header.kept / 8; ++column)
      payload[column * type.block_elems() + index] = static_cast<uint8_t>(rest >> 8 * column);
  }
  BitWriter stream(payload + type.stream_offset(header.kept));
  for (int group = 0; group < type.groups(); ++group) {
    const Code& code = header.groups[group].code;
    for_each_value(type, group, [&](int index, int lane, int bit) {
      const auto set = [&](uint8_t* plane, uint64_t value) {
        uint8_t& byte = plane_byte(plane, lane, bit);
        byte = static_cast<uint8_t>(byte | (value & 1) << bit % 8);
      };
      const uint64_t rest = split_value(type, values, index).rest >> trim;
      for (int plane = 0; plane < header.kept % 8; ++plane)
        set(payload + type.plane_offset(header.kept) + (group * (header.kept % 8) + plane) * plane_bytes,
            rest >> (header.kept / 8 * 8 + plane));
      for (int plane = 0; plane < 2; ++plane)
        set(payload + type.digit_offset(header.kept) + (group * 2 + plane) * plane_bytes,
            static_cast<uint64_t>(words[static_cast<size_t>(index)].digit) >> plane);
    });
    for_each_value(type, group, [&](int index, int, int) {
      const Word& word = words[static_cast<size_t>(index)];
      if (word.digit >= code.single && word.digit < 3) stream.put(word.extra);
    });
    for_each_value(type, group, [&](int index, int, int) {
      const Word& word = words[static_cast<size_t>(index)];
      if (word.digit == 3 && code.paired) stream.put(word.extra);
    });
    for_each_value(type, group, [&](int index, int, int) {
      const Word& word = words[static_cast<size_t>(index)];
      if (word.digit != 3) return;
      for (int i = 0; i < word.ones; ++i) stream.put(1);
      stream.put(0);
    });
  }
  uint8_t* end = payload + bytes - type.header_bytes();
  for (const uint8_t position : far_positions) *--end = position;
  write_payload_header(type, header, payload, static_cast<size_t>(bytes));
  return static_cast<size_t>(bytes);
}

bool decode(const ValueType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  if (payload_bytes == static_cast<size_t>(type.block_bytes())) {
    std::memcpy(values, payload, payload_bytes);
    return true;
  }
  PayloadHeader header;
  if (!read_payload_header(type, payload, payload_bytes, &header)) return false;
  const int trim = type.rest_bits() - header.kept;

  std::vector<Parts> block(static_cast<size_t>(type.block_elems()), Parts{0, 0});
  for (int index = 0; index < type.block_elems(); ++index)
    for (int column = 0; column < header.kept / 8; ++column)
      block[static_cast<size_t>(index)].rest |= uint64_t{payload[column * type.block_elems() + index]} << 8 * column;

  const size_t stream_offset = static_cast<size_t>(type.stream_offset(header.kept));
  const uint8_t* const end = payload + payload_bytes - type.header_bytes();
  BitReader stream(payload + stream_offset, static_cast<size_t>(end - payload) - stream_offset);
  int far = 0;
  for (int group = 0; group < type.groups(); ++group) {
    const GroupHeader& coded = header.groups[group];
    std::vector<Word> words(static_cast<size_t>(type.block_elems()));
    int escapes = 0;
    for_each_value(type, group, [&](int index, int lane, int bit) {
      const auto get = [&](const uint8_t* plane) { return plane[lane * 4 + bit / 8] >> bit % 8 & 1; };
      for (int plane = 0; plane < header.kept % 8; ++plane)
        block[static_cast<size_t>(index)].rest |=
            static_cast<uint64_t>(
                get(payload + type.plane_offset(header.kept) + (group * (header.kept % 8) + plane) * plane_bytes))
            << (header.kept / 8 * 8 + plane);
      const uint8_t* digits = payload + type.digit_offset(header.kept) + group * 2 * plane_bytes;
      words[static_cast<size_t>(index)] = {get(digits) | get(digits + plane_bytes) << 1, 0, 0};
      escapes += words[static_cast<size_t>(index)].digit == 3;
    });
    if (escapes > most_escapes) return false;
    for_each_value(type, group, [&](int index, int, int) {
      Word& word = words[static_cast<size_t>(index)];
      if (word.digit >= coded.code.single && word.digit < 3) word.extra = stream.get();
    });
    for_each_value(type, group, [&](int index, int, int) {
      Word& word = words[static_cast<size_t>(index)];
      if (word.digit == 3 && coded.code.paired) word.extra = stream.get();
    });
    bool valid = true;
    for_each_value(type, group, [&](int index, int, int) {
      Word& word = words[static_cast<size_t>(index)];
      if (word.digit != 3 || !valid) return;
      while (valid && stream.get() != 0) valid = ++word.ones <= coded.code.far_ones();
      valid = valid && !stream.ended();
    });
    if (!valid) return false;
    for_each_value(type, group, [&](int index, int, int) {
      const Word& word = words[static_cast<size_t>(index)];
      const Code& code = coded.code;
      int rank;
      if (word.digit < code.single)
        rank = word.digit;
      else if (word.digit < 3)
        rank = code.single + 2 * (word.digit - code.single) + word.extra;
      else
        rank = code.digit_ranks() + (code.paired ? 2 * word.ones + word.extra : word.ones);
      int position;
      if (word.digit == 3 && word.ones == code.far_ones()) {
        ++far;
        if (static_cast<size_t>(type.payload_bytes(header.kept, static_cast<int>(stream.count()), far)) > payload_bytes)
          valid = false;
        position = valid ? *(end - far) : 0;
      } else {
        position = header.position(type, coded, rank);
      }
      block[static_cast<size_t>(index)].exponent = exponent_at(type, coded.base, position);
    });
    if (!valid) return false;
  }
  if (payload_bytes != static_cast<size_t>(type.payload_bytes(header.kept, static_cast<int>(stream.count()), far)))
    return false;

  for (int index = 0; index < type.block_elems(); ++index) {
    Parts& parts = block[static_cast<size_t>(index)];
    parts.rest <<= trim;
    join_value(type, parts, values, index);
  }
  return true;
}

}  // namespace

const BlockCoder reference{encode, decode};

}  // namespace narrowcast::codec::dense
