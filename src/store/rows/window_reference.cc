#include "store/rows/window_reference.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace narrowcast::store {
namespace {

using namespace codec::window;

struct Window {
  int width;
  int base;
};

struct Parts {
  int exponent;
  uint32_t rest;  // the sign above the head's mantissa
  uint64_t tail;
};

Parts split_value(const WindowLayout& layout, uint64_t value) {
  const auto head = static_cast<uint32_t>(value >> 8 * layout.tail_bytes);
  const int m = layout.mantissa_bits();
  const uint32_t exponent = head >> m & ((1u << layout.exponent_bits) - 1);
  const uint32_t sign = head >> (m + layout.exponent_bits) & 1;
  return {static_cast<int>(exponent), sign << m | (head & ((1u << m) - 1)),
          value & ((uint64_t{1} << 8 * layout.tail_bytes) - 1)};
}

uint64_t join_value(const WindowLayout& layout, const Parts& parts) {
  const int m = layout.mantissa_bits();
  const uint64_t head = uint64_t{parts.rest >> m} << (m + layout.exponent_bits) |
                        static_cast<uint64_t>(parts.exponent) << m | (parts.rest & ((1u << m) - 1));
  return head << 8 * layout.tail_bytes | parts.tail;
}

// The groups of a row: where their values and their sections begin.
struct Group {
  size_t first;  // value
  int lanes;
  size_t tails, rest_bytes, rest_bits, codes;  // offsets in the body
};

std::vector<Group> groups_of(const WindowLayout& layout, size_t elems, int width) {
  std::vector<Group> groups;
  size_t offset = 0;
  const size_t in_lanes = elems / 32 * 32;
  for (size_t first = 0; first < in_lanes; first += group_elems) {
    const size_t count = std::min<size_t>(in_lanes - first, group_elems), group_lanes = count / 32;
    Group group{first, static_cast<int>(group_lanes), offset, 0, 0, 0};
    group.rest_bytes = group.tails + count * static_cast<size_t>(layout.tail_bytes);
    group.rest_bits = group.rest_bytes + count * static_cast<size_t>(layout.rest_bytes);
    group.codes = group.rest_bits + 4 * group_lanes * static_cast<size_t>(layout.rest_bits);
    offset = group.codes + 4 * group_lanes * static_cast<size_t>(width);
    groups.push_back(group);
  }
  return groups;
}

size_t value_index(const WindowLayout& layout, const Group& group, int lane, int word, int byte) {
  const int sequence = word * 4 + byte;
  const int vector = sequence / layout.vector_elems(), within = sequence % layout.vector_elems();
  return group.first + static_cast<size_t>((vector * group.lanes + lane) * layout.vector_elems() + within);
}

// Visits the values of a group in the order of its escapes.
template <typename Visit>
void for_each_value(const WindowLayout& layout, const Group& group, Visit visit) {
  for (int lane = 0; lane < group.lanes; ++lane)
    for (int byte = 0; byte < 4; ++byte)
      for (int word = 0; word < group_words; ++word)
        visit(value_index(layout, group, lane, word, byte), lane, word, byte);
}

// Position of bit `bit` of the field of (lane, word, byte) in a packed section.
struct PackedBit {
  size_t byte;
  int bit;
};
PackedBit packed_bit(const Group& group, int width, int lane, int word, int byte, int bit) {
  const int whole = 8 / width;          // whole fields in each byte
  const int spare = 8 - whole * width;  // bits left at the top
  int row = 0, position = 0;
  if (word < whole * width) {
    row = word / whole;
    position = word % whole * width + bit;
  } else {
    const int leftover = (word - whole * width) * width + bit;
    row = leftover / spare;
    position = whole * width + leftover % spare;
  }
  return {static_cast<size_t>((row * group.lanes + lane) * 4 + byte), position};
}

void pack(const Group& group, int width, int lane, int word, int byte, uint32_t field, uint8_t* section) {
  for (int bit = 0; bit < width; ++bit) {
    const PackedBit at = packed_bit(group, width, lane, word, byte, bit);
    section[at.byte] = static_cast<uint8_t>(section[at.byte] | (field >> bit & 1) << at.bit);
  }
}

uint32_t unpack(const Group& group, int width, int lane, int word, int byte, const uint8_t* section) {
  uint32_t field = 0;
  for (int bit = 0; bit < width; ++bit) {
    const PackedBit at = packed_bit(group, width, lane, word, byte, bit);
    field |= (static_cast<uint32_t>(section[at.byte]) >> at.bit & 1) << bit;
  }
  return field;
}

Window choose_window(const WindowLayout& layout, std::span<const uint64_t> values) {
  const size_t in_lanes = values.size() / 32 * 32, count = std::min(in_lanes, max_row_samples);
  std::vector<int> sample(count);
  for (size_t i = 0; i < count; ++i) sample[i] = split_value(layout, values[i * in_lanes / count]).exponent;

  // The largest of the minima of four samples each: a few outliers on either side do not change it.
  int anchor = 0;
  const size_t columns = count / sample_quarters;
  for (size_t column = 0; column < columns; ++column) {
    int least = sample[column];
    for (size_t quarter = 1; quarter < sample_quarters; ++quarter)
      least = std::min(least, sample[quarter * columns + column]);
    anchor = std::max(anchor, least);
  }
  const int lowest = std::max(anchor - bins_below_anchor, 0);
  std::array<int, bins> histogram{};
  for (const int exponent : sample)
    if (exponent >= lowest && exponent < lowest + bins) ++histogram[static_cast<size_t>(exponent - lowest)];

  const int total = static_cast<int>(count);
  const int zeros = static_cast<int>(std::count(sample.begin(), sample.end(), 0));
  const auto samples_in = [&](int from, int to) {
    int samples = 0;
    for (int bin = std::max(from, 0); bin < std::min(to, bins); ++bin) samples += histogram[static_cast<size_t>(bin)];
    return samples;
  };
  Window best{1, 0};
  int best_cost = std::numeric_limits<int>::max();
  for (int width = layout.max_width(); width >= 1; --width) {
    const int span = (1 << width) - 1;
    for (int bin = 0; bin < bins; ++bin) {
      const int from = bin - below_tokens, to = bin + span + above_tokens;
      const bool zero_is_near = lowest == 0 && from <= 0;
      const int escapes = total - samples_in(bin, bin + span);
      const int far = total - samples_in(from, to) - (zero_is_near ? 0 : zeros);
      const int cost =
          width * total + escape_cost(layout.exponent_bits, count) * escapes + 8 * layout.far_bytes() * far;
      if (cost < best_cost) {
        best_cost = cost;
        best = {width, std::min(lowest + bin, (1 << layout.exponent_bits) - (1 << width))};
      }
    }
  }
  return best;
}

int token_of(const Window& window, int exponent) {
  const int from_lowest = exponent - (window.base - below_tokens);
  const int above = exponent - (window.base + (1 << window.width) - 1);
  if (exponent == 0) return zero_token;
  if (from_lowest >= 0 && from_lowest < below_tokens) return from_lowest;
  if (above >= 0 && above < above_tokens) return below_tokens + above;
  return far_token;
}

}  // namespace

bool encode_window_values(const WindowLayout& layout, std::span<const uint64_t> values, uint32_t* header,
                          std::vector<uint8_t>& body) {
  const Window window = choose_window(layout, values);
  const int escape_code = (1 << window.width) - 1;
  body.assign(layout.fixed_bytes(values.size(), window.width), 0);

  std::vector<int> tokens, far;
  for (const Group& group : groups_of(layout, values.size(), window.width))
    for_each_value(layout, group, [&](size_t index, int lane, int word, int byte) {
      const Parts parts = split_value(layout, values[index]);
      const size_t in_group = index - group.first;
      for (int i = 0; i < layout.tail_bytes; ++i)
        body[group.tails + in_group * static_cast<size_t>(layout.tail_bytes) + static_cast<size_t>(i)] =
            static_cast<uint8_t>(parts.tail >> 8 * i);
      if (layout.rest_bytes != 0) body[group.rest_bytes + in_group] = static_cast<uint8_t>(parts.rest);
      if (layout.rest_bits != 0)
        pack(group, layout.rest_bits, lane, word, byte, parts.rest >> 8 * layout.rest_bytes, &body[group.rest_bits]);
      const int distance = parts.exponent - window.base;
      const bool inside = distance >= 0 && distance < escape_code;
      pack(group, window.width, lane, word, byte, static_cast<uint32_t>(inside ? distance : escape_code),
           &body[group.codes]);
      if (inside) return;
      tokens.push_back(token_of(window, parts.exponent));
      if (tokens.back() == far_token) far.push_back(parts.exponent);
    });
  const size_t in_lanes = values.size() / 32 * 32;
  for (size_t i = in_lanes; i < values.size(); ++i)
    std::memcpy(
        &body[layout.fixed_bytes(in_lanes, window.width) + (i - in_lanes) * static_cast<size_t>(layout.coded_bytes())],
        &values[i], static_cast<size_t>(layout.coded_bytes()));
  if (tokens.size() > max_row_escapes) return false;

  for (size_t i = 0; i < tokens.size(); i += 2)
    body.push_back(static_cast<uint8_t>(tokens[i] | (i + 1 < tokens.size() ? tokens[i + 1] << 4 : 0)));
  for (const int exponent : far)
    for (int i = 0; i < layout.far_bytes(); ++i) body.push_back(static_cast<uint8_t>(exponent >> 8 * i));
  body.resize(aligned4(body.size()));
  *header = static_cast<uint32_t>(window.width) << row_width_shift |
            static_cast<uint32_t>(window.base) << row_base_shift |
            static_cast<uint32_t>(tokens.size()) << row_escapes_shift;
  return true;
}

bool decode_window_values(const WindowLayout& layout, uint32_t header, const uint8_t* body, size_t body_bytes,
                          std::span<uint64_t> values) {
  const int width = static_cast<int>(header >> row_width_shift & row_width_mask);
  const int base = static_cast<int>(header >> row_base_shift & row_base_mask);
  const size_t escapes = header >> row_escapes_shift;
  if (width < 1 || width > layout.max_width() || base > (1 << layout.exponent_bits) - (1 << width)) return false;
  if (layout.body_bytes(values.size(), width, escapes, 0) > body_bytes) return false;

  const int escape_code = (1 << width) - 1, exponent_mask = (1 << layout.exponent_bits) - 1;
  const size_t in_lanes = values.size() / 32 * 32, fixed_bytes = layout.fixed_bytes(values.size(), width);
  const uint8_t* tokens = body + fixed_bytes;
  const uint8_t* far = tokens + (escapes + 1) / 2;
  const auto token_at = [&](size_t i) { return tokens[i / 2] >> i % 2 * 4 & 15; };
  size_t far_escapes = 0;
  for (size_t i = 0; i < escapes; ++i) far_escapes += token_at(i) == far_token ? 1 : 0;
  if (layout.body_bytes(values.size(), width, escapes, far_escapes) > body_bytes) return false;

  size_t escaped = 0;
  for (const Group& group : groups_of(layout, values.size(), width))
    for_each_value(layout, group, [&](size_t index, int lane, int word, int byte) {
      const size_t in_group = index - group.first;
      Parts parts{0, 0, 0};
      for (int i = 0; i < layout.tail_bytes; ++i)
        parts.tail |=
            uint64_t{body[group.tails + in_group * static_cast<size_t>(layout.tail_bytes) + static_cast<size_t>(i)]}
            << 8 * i;
      if (layout.rest_bytes != 0) parts.rest = body[group.rest_bytes + in_group];
      if (layout.rest_bits != 0)
        parts.rest |= unpack(group, layout.rest_bits, lane, word, byte, body + group.rest_bits)
                      << 8 * layout.rest_bytes;
      const int code = static_cast<int>(unpack(group, width, lane, word, byte, body + group.codes));
      parts.exponent = base + code;
      if (code == escape_code && escaped++ < escapes) {
        const int token = token_at(escaped - 1);
        if (token < below_tokens)
          parts.exponent = base - below_tokens + token;
        else if (token < zero_token)
          parts.exponent = base + escape_code + token - below_tokens;
        else if (token == zero_token)
          parts.exponent = 0;
        else {
          parts.exponent = far[0] | (layout.far_bytes() == 2 ? far[1] << 8 : 0);
          far += layout.far_bytes();
        }
        parts.exponent &= exponent_mask;
      }
      values[index] = join_value(layout, parts);
    });
  if (escaped != escapes) return false;

  const uint8_t* whole = body + layout.fixed_bytes(in_lanes, width);
  for (size_t i = in_lanes; i < values.size(); ++i) {
    values[i] = 0;
    std::memcpy(&values[i], whole + (i - in_lanes) * static_cast<size_t>(layout.coded_bytes()),
                static_cast<size_t>(layout.coded_bytes()));
    if (layout.coded_bits() < 64) values[i] &= (uint64_t{1} << layout.coded_bits()) - 1;
  }
  return true;
}

}  // namespace narrowcast::store
