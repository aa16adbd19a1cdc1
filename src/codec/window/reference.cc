// The codec `window` as specified in docs/format/window.md, one value at a time. It is the oracle for the other
// implementations, so it shares their constants but none of their code.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "codec/window/block.h"

namespace narrowcast::codec::window {
namespace {

// A value split into its parts.
struct Parts {
  int exponent;
  uint64_t rest;  // the sign above the mantissa, without the trimmed bits
};

int mantissa_bits(const ValueType& type) { return 8 * type.value_bytes - 1 - type.exponent_bits; }

Parts split_value(const ValueType& type, const uint8_t* values, int index) {
  uint64_t bits = 0;
  std::memcpy(&bits, values + index * type.value_bytes, static_cast<size_t>(type.value_bytes));
  const int mantissa = mantissa_bits(type);
  const uint64_t sign = bits >> (8 * type.value_bytes - 1);
  const uint64_t exponent = bits >> mantissa & ((uint64_t{1} << type.exponent_bits) - 1);
  const uint64_t rest = sign << mantissa | (bits & ((uint64_t{1} << mantissa) - 1));
  return {static_cast<int>(exponent), rest >> type.trimmed_bits()};
}

void join_value(const ValueType& type, const Parts& parts, uint8_t* values, int index) {
  const int mantissa = mantissa_bits(type);
  const uint64_t rest = parts.rest << type.trimmed_bits();
  const uint64_t bits = rest >> mantissa << (8 * type.value_bytes - 1) |
                        static_cast<uint64_t>(parts.exponent) << mantissa | (rest & ((uint64_t{1} << mantissa) - 1));
  std::memcpy(values + index * type.value_bytes, &bits, static_cast<size_t>(type.value_bytes));
}

// The type as it is stored: with the fewest bits that it can keep if all others are zero.
ValueType type_as_stored(const ValueType& type, const uint8_t* values) {
  uint64_t used = 0;
  for (int index = 0; index < type.block_elems(); ++index) used |= split_value(type, values, index).rest;
  for (const int kept : {8, 11, 24})
    if (type.can_keep(kept) && used % (uint64_t{1} << type.trimmed(kept).trimmed_bits()) == 0)
      return type.trimmed(kept);
  return type;
}

// Index in the block of the value at (group, lane, word, byte).
int value_index(const ValueType& type, int group, int lane, int word, int byte) {
  const int sequence = word * 4 + byte;  // number among the lane's 32 values of this group
  const int vector = sequence / type.vector_elems();
  const int within = sequence % type.vector_elems();
  return group * group_elems + (vector * lanes + lane) * type.vector_elems() + within;
}

// Visits a block's values in the order in which the payload lists their escapes.
template <typename Visit>
void for_each_in_escape_order(const ValueType& type, Visit visit) {
  for (int lane = 0; lane < lanes; ++lane)
    for (int group = 0; group < type.groups(); ++group)
      for (int byte = 0; byte < 4; ++byte)
        for (int word = 0; word < group_words; ++word) visit(value_index(type, group, lane, word, byte));
}

// Position in a packed section of bit `bit` of the field at (group, lane, word, byte). Eight fields, one of each word,
// share `width` bytes. Each byte holds as many whole fields as fit, from the lowest bit up. The bits of the leftover
// fields, in order, fill the top bits of the bytes.
struct PackedBit {
  int byte;
  int bit;
};
PackedBit packed_bit(int width, int group, int lane, int word, int byte, int bit) {
  const int whole = 8 / width;          // whole fields in each byte
  const int spare = 8 - whole * width;  // bits left at the top
  int row, position;
  if (word < whole * width) {
    row = word / whole;
    position = word % whole * width + bit;
  } else {
    const int stream = (word - whole * width) * width + bit;
    row = stream / spare;
    position = whole * width + stream % spare;
  }
  return {((group * width + row) * lanes + lane) * 4 + byte, position};
}

template <typename FieldOf>
void pack(const ValueType& type, int width, uint8_t* section, FieldOf field_of) {
  for (int group = 0; group < type.groups(); ++group)
    for (int lane = 0; lane < lanes; ++lane)
      for (int word = 0; word < group_words; ++word)
        for (int byte = 0; byte < 4; ++byte) {
          const uint32_t field = field_of(value_index(type, group, lane, word, byte));
          for (int bit = 0; bit < width; ++bit) {
            const PackedBit at = packed_bit(width, group, lane, word, byte, bit);
            section[at.byte] = static_cast<uint8_t>(section[at.byte] | (field >> bit & 1) << at.bit);
          }
        }
}

template <typename SetField>
void unpack(const ValueType& type, int width, const uint8_t* section, SetField set_field) {
  for (int group = 0; group < type.groups(); ++group)
    for (int lane = 0; lane < lanes; ++lane)
      for (int word = 0; word < group_words; ++word)
        for (int byte = 0; byte < 4; ++byte) {
          uint32_t field = 0;
          for (int bit = 0; bit < width; ++bit) {
            const PackedBit at = packed_bit(width, group, lane, word, byte, bit);
            field |= (static_cast<uint32_t>(section[at.byte]) >> at.bit & 1) << bit;
          }
          set_field(value_index(type, group, lane, word, byte), field);
        }
}

struct Window {
  int width;  // 0: store the block raw
  int base;
};

// Places the window according to a sample of the block: 4 values from each lane, counted in a histogram of 32 bins.
// Samples outside the bins count as not covered. type: as it is stored.
Window choose_window(const ValueType& type, const uint8_t* values) {
  std::array<std::array<int, samples_per_lane>, lanes> samples_by_lane;
  for (int lane = 0; lane < lanes; ++lane)
    for (int i = 0; i < samples_per_lane; ++i) {
      const int index =
          i * (type.block_elems() / samples_per_lane) + lane * type.vector_elems() + (lane + i) % type.vector_elems();
      samples_by_lane[lane][i] = split_value(type, values, index).exponent;
    }

  // The largest of the lanes' minima: a few outliers on either side do not change it.
  int anchor = 0;
  for (const auto& lane_samples : samples_by_lane)
    anchor = std::max(anchor, *std::min_element(lane_samples.begin(), lane_samples.end()));
  const int lowest = std::max(anchor - bins_below_anchor, 0);

  std::array<int, bins> histogram{};
  for (const auto& lane_samples : samples_by_lane)
    for (const int exponent : lane_samples)
      if (exponent >= lowest && exponent < lowest + bins) ++histogram[exponent - lowest];

  Window best{0, 0};
  int best_cost = (type.exponent_bits + type.trimmed_bits()) * samples;  // what only a raw block stores
  for (int width = type.max_width(); width >= 1; --width) {
    const int span = (1 << width) - 1;  // exponents in the window; the last code is the escape
    int most_covered = -1, first = 0;
    for (int bin = 0; bin < bins; ++bin) {
      int covered = 0;
      for (int i = bin; i < std::min(bin + span, bins); ++i) covered += histogram[i];
      if (covered > most_covered) most_covered = covered, first = bin;
    }
    const int cost = width * samples + escape_cost_bits * (samples - most_covered);
    if (cost < best_cost) {
      best_cost = cost;
      best = {width, std::min(lowest + first, (1 << type.exponent_bits) - (1 << width))};
    }
  }
  return best;
}

int token_of(const Window& window, int exponent) {
  const int span = (1 << window.width) - 1;
  const int from_lowest = exponent - (window.base - below_tokens);
  const int above = exponent - (window.base + span);
  if (exponent == 0) return zero_token;
  if (from_lowest >= 0 && from_lowest < below_tokens) return from_lowest;
  if (above >= 0 && above < above_tokens) return below_tokens + above;
  return far_token;
}

size_t store_raw(const ValueType& type, const uint8_t* values, uint8_t* payload) {
  std::memcpy(payload, values, static_cast<size_t>(type.block_bytes()));
  return static_cast<size_t>(type.block_bytes());
}

size_t encode(const ValueType& whole, const uint8_t* values, uint8_t* payload) {
  const ValueType type = type_as_stored(whole, values);
  const Window window = choose_window(type, values);
  if (window.width == 0) return store_raw(type, values, payload);

  const int escape_code = (1 << window.width) - 1;
  const auto code_of = [&](int index) {
    const int distance = split_value(type, values, index).exponent - window.base;
    return distance >= 0 && distance < escape_code ? distance : escape_code;
  };

  std::vector<int> tokens, far;
  for_each_in_escape_order(type, [&](int index) {
    if (code_of(index) != escape_code) return;
    const int exponent = split_value(type, values, index).exponent;
    tokens.push_back(token_of(window, exponent));
    if (tokens.back() == far_token) far.push_back(exponent);
  });
  const int bytes = type.payload_bytes(window.width, static_cast<int>(tokens.size()), static_cast<int>(far.size()));
  if (bytes >= type.block_bytes()) return store_raw(type, values, payload);

  std::memset(payload, 0, static_cast<size_t>(bytes));
  for (int index = 0; index < type.block_elems(); ++index) {
    const uint64_t rest = split_value(type, values, index).rest;
    std::memcpy(payload + index * type.tail_bytes, &rest, static_cast<size_t>(type.tail_bytes));
    if (type.rest_bytes != 0)
      payload[type.rest_byte_offset() + index] = static_cast<uint8_t>(rest >> 8 * type.tail_bytes);
  }
  if (type.rest_bits != 0)
    pack(type, type.rest_bits, payload + type.rest_bit_offset(), [&](int index) {
      return static_cast<uint32_t>(split_value(type, values, index).rest >> 8 * (type.tail_bytes + type.rest_bytes));
    });
  pack(type, window.width, payload + type.code_offset(),
       [&](int index) { return static_cast<uint32_t>(code_of(index)); });
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint8_t& pair = payload[static_cast<size_t>(type.escape_offset(window.width)) + i / 2];
    pair = static_cast<uint8_t>(pair | tokens[i] << i % 2 * 4);
  }
  for (size_t i = 0; i < far.size(); ++i)
    std::memcpy(payload + bytes - 4 - static_cast<int>(i + 1) * type.far_bytes(), &far[i],
                static_cast<size_t>(type.far_bytes()));
  const uint32_t header = static_cast<uint32_t>(window.width) | static_cast<uint32_t>(window.base) << base_shift |
                          static_cast<uint32_t>(tokens.size()) << escapes_shift |
                          (type.trimmed_bits() != 0 ? static_cast<uint32_t>(type.kept_bits()) << kept_shift : 0);
  std::memcpy(payload + bytes - 4, &header, 4);
  return static_cast<size_t>(bytes);
}

bool decode(const ValueType& whole, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  if (payload_bytes == static_cast<size_t>(whole.block_bytes())) {
    std::memcpy(values, payload, payload_bytes);
    return true;
  }
  PayloadHeader header;
  if (!read_payload_header(whole, payload, payload_bytes, &header)) return false;
  const ValueType& type = header.stored;

  std::vector<Parts> block(static_cast<size_t>(type.block_elems()));
  for (int index = 0; index < type.block_elems(); ++index) {
    uint64_t& rest = block[static_cast<size_t>(index)].rest;
    rest = 0;
    std::memcpy(&rest, payload + index * type.tail_bytes, static_cast<size_t>(type.tail_bytes));
    if (type.rest_bytes != 0) rest |= uint64_t{payload[type.rest_byte_offset() + index]} << 8 * type.tail_bytes;
  }
  if (type.rest_bits != 0)
    unpack(type, type.rest_bits, payload + type.rest_bit_offset(), [&](int index, uint32_t field) {
      block[static_cast<size_t>(index)].rest |= uint64_t{field} << 8 * (type.tail_bytes + type.rest_bytes);
    });

  const int escape_code = (1 << header.width) - 1;
  const int exponent_mask = (1 << type.exponent_bits) - 1;
  std::vector<bool> escaped(static_cast<size_t>(type.block_elems()));
  unpack(type, header.width, payload + type.code_offset(), [&](int index, uint32_t code) {
    escaped[static_cast<size_t>(index)] = static_cast<int>(code) == escape_code;
    block[static_cast<size_t>(index)].exponent = header.base + static_cast<int>(code);
  });
  if (std::count(escaped.begin(), escaped.end(), true) != header.escapes) return false;

  const uint8_t* tokens = payload + type.escape_offset(header.width);
  int far_count = 0;
  for (int i = 0; i < header.escapes; ++i) far_count += (tokens[i / 2] >> i % 2 * 4 & 15) == far_token;
  if (payload_bytes != static_cast<size_t>(type.payload_bytes(header.width, header.escapes, far_count))) return false;

  int next = 0, next_far = 0;
  for_each_in_escape_order(type, [&](int index) {
    if (!escaped[static_cast<size_t>(index)]) return;
    const int token = tokens[next / 2] >> next % 2 * 4 & 15;
    ++next;
    int exponent = 0;
    if (token < below_tokens) {
      exponent = header.base - below_tokens + token;
    } else if (token < zero_token) {
      exponent = header.base + escape_code + token - below_tokens;
    } else if (token == far_token) {
      ++next_far;
      std::memcpy(&exponent, payload + payload_bytes - 4 - static_cast<size_t>(next_far * type.far_bytes()),
                  static_cast<size_t>(type.far_bytes()));
    }
    block[static_cast<size_t>(index)].exponent = exponent & exponent_mask;
  });

  for (int index = 0; index < type.block_elems(); ++index)
    join_value(type, block[static_cast<size_t>(index)], values, index);
  return true;
}

}  // namespace

const BlockCoder reference{encode, decode};

}  // namespace narrowcast::codec::window
