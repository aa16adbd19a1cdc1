// A block of `dense` on the GPU: one warp encodes or decodes it between two buffers in shared memory
// (docs/format/dense.md). It allocates nothing and synchronizes only the warp, so any kernel can use it. reference.cc
// produces the same bytes.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "bit_moves.cuh"
#include "choice.cuh"
#include "format.h"
#include "parts.cuh"

namespace narrowcast::codec::dense {

// How an exponent is written: the digit in bits 0 and 1, extra or pair bit in bit 2, the number of ones above.
inline constexpr int extra_bit = 2, ones_shift = 3;

template <ValueType Type>
class Block {
  static constexpr int words = 8;  // of four values, in a group of a lane
  static constexpr int groups = Type.groups();
  static constexpr bool is_wide = Type.exponent_bits > 8;

 public:
  static constexpr uint32_t values_bytes = Type.block_bytes();
  // Scratch of a warp in shared memory; 4-byte aligned.
  struct Lists {
    uint32_t table[64];                      // a byte for each exponent, or for each rank
    uint32_t escapes[most_escapes / 4 + 2];  // a byte for each digit 3 of a group
  };
  union Scratch {
    Histogram histogram;
    Lists lists;
  };

  // Encodes a block. values, payload: shared memory, 16-byte aligned, values_bytes long; the values must be visible to
  // the whole warp. Returns the payload's size in bytes to all lanes, a multiple of 16. A size of values_bytes means
  // that the block is stored raw: its payload is `values`, and the content of `payload` is undefined.
  __device__ static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane) {
    const auto* in = static_cast<const char*>(values);
    auto* out = static_cast<char*>(payload);
    uint32_t trim;
    bool zero_first;
    inspect(in, trim, zero_first, lane);
    const uint32_t kept = Type.rest_bits() - trim;
    const uint32_t stream_offset = Type.stream_offset(kept);
    Output output{out, out + stream_offset, (values_bytes - stream_offset) * 8, 0, 0, 0};

    uint32_t header[groups];
#pragma unroll
    for (uint32_t& word : header) word = 0;
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      const Choice choice = choose<Type>(in, group, zero_first, scratch.histogram, lane);
      if (!encode_group(in, output, kept, trim, zero_first, choice, group, scratch, lane)) return values_bytes;
      // The words shift through the array, because a variable index would move the array out of registers.
#pragma unroll
      for (int i = 1; i < groups; ++i) header[i - 1] = header[i];
      header[groups - 1] = choice.code | choice.order << order_shift | choice.base << base_shift;
    }
    const uint32_t bytes = Type.payload_bytes(kept, output.bits, output.far);
    if (bytes >= values_bytes) return values_bytes;
    finish(output, bytes, header, trim | (zero_first ? zero_first_bit : 0), lane);
    return bytes;
  }

  // Decodes a block. payload: 16-byte aligned, payload_bytes long (at most values_bytes), with any content. values:
  // shared memory, 16-byte aligned; the warp must synchronize before it reads them. Returns the same result to all
  // lanes: false if the payload does not follow the format (the values are then unspecified). Do not call it for a raw
  // payload (payload_bytes == values_bytes), which is the values themselves.
  __device__ static bool decode(const void* payload, uint32_t payload_bytes, void* values, Scratch& scratch, int lane) {
    const auto* in = static_cast<const char*>(payload);
    auto* out = static_cast<char*>(values);
    const uint32_t last = load<uint8_t>(in + payload_bytes - 1);
    const uint32_t trim = last & trim_mask;
    if ((last & ~static_cast<uint32_t>(trim_mask | zero_first_bit)) != 0 || trim > Type.mantissa_bits()) return false;
    const uint32_t kept = Type.rest_bits() - trim;
    if (Type.payload_bytes(kept, 0, 0) > payload_bytes) return false;
    const uint32_t stream_offset = Type.stream_offset(kept);
    const uint32_t end = payload_bytes - Type.header_bytes();
    Input input{in, in + stream_offset, (end - stream_offset) * 8, (payload_bytes - stream_offset) / 4 - 1, end, 0, 0};

#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      const char* at = in + end + group * Type.group_word_bytes();
      uint32_t word = load<uint8_t>(at) | load<uint8_t>(at + 1) << 8;
      if constexpr (is_wide) word |= load<uint8_t>(at + 2) << 16;
      const Choice choice{word & (codes - 1), word >> order_shift & (orders - 1), word >> base_shift};
      if (choice.base > Type.exponent_mask()) return false;
      if (!decode_group(input, out, kept, trim, (last & zero_first_bit) != 0, choice, group, scratch, lane))
        return false;
    }
    return Type.payload_bytes(kept, input.bits, input.far) == payload_bytes;
  }

 private:
  // The number of low mantissa bits that are zero in all values, and whether many values have the exponent 0.
  __device__ static void inspect(const char* in, uint32_t& trim, bool& zero_first, int lane) {
    constexpr int vectors = values_bytes / (lanes * vector_bytes);
    uint32_t any[2] = {0, 0}, nonzero = 0;  // any[1]: the upper words of float64
    // Adding the field of an exponent to itself carries into the place of the sign unless it is zero.
    const auto count = [&](uint32_t word) {
      nonzero += __popc((word & exponent_fields<Type>)+exponent_fields<Type> &
                        exponent_fields<Type> + in_each_value<Type>(1u << word_mantissa_bits<Type>));
    };
#pragma unroll 4
    for (int i = 0; i < vectors; ++i) {
      const uint4 vector = load<uint4>(in + (i * lanes + lane) * vector_bytes);
      if constexpr (Type.value_bytes == 8) {
        any[0] |= vector.x | vector.z;
        any[1] |= vector.y | vector.w;
      } else {
        any[0] |= vector.x | vector.y | vector.z | vector.w;
        count(vector.x), count(vector.z);
      }
      count(vector.y), count(vector.w);
    }
    if constexpr (Type.value_bytes <= 2) any[0] |= any[0] >> 16;
    if constexpr (Type.value_bytes == 1) any[0] |= any[0] >> 8;
    const uint32_t low = reduce_or(any[0]), high = Type.value_bytes == 8 ? reduce_or(any[1]) : 0;
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low | uint64_t{1} << Type.mantissa_bits();
    trim = __ffsll(static_cast<long long>(both)) - 1;
    const uint32_t zeros = Type.block_elems() - __reduce_add_sync(device::all_lanes, nonzero);
    zero_first = zeros * zeros_per_block > Type.block_elems();
  }
  __device__ static uint32_t reduce_or(uint32_t word) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) word |= __shfl_xor_sync(device::all_lanes, word, step);
    return word;
  }

  // Transposes the 4 x 4 bits of each half.
  __device__ static uint32_t transposed(uint32_t bits) {
    uint32_t swapped = (bits ^ bits >> 3) & 0x0a0a0a0a;
    bits ^= swapped ^ swapped << 3;
    swapped = (bits ^ bits >> 6) & 0x00cc00cc;
    return bits ^ swapped ^ swapped << 6;
  }
  // Bit `bit` of each byte: that of byte b of word w becomes bit 4 * w + b.
  __device__ static uint32_t plane_of(const uint32_t (&bytes)[words], uint32_t bit) {
    uint32_t bits = 0;  // bit 8 * b + w
#pragma unroll
    for (int word = 0; word < words; ++word) bits |= (bytes[word] >> bit & device::bytes4(1)) << word;
    uint32_t low = bits & 0x0f0f0f0f, high = bits >> 4 & 0x0f0f0f0f;  // bits 4 * b + w % 4
    low = (low | low >> 4) & 0x00ff00ff;
    high = (high | high >> 4) & 0x00ff00ff;
    return transposed(__byte_perm(low, high, 0x6420));
  }
  // The bits of a transposed plane that belong to the values of `word`, one in each of the four low nibbles.
  __device__ static uint32_t nibbles_of(uint32_t plane, int word) {
    return plane >> (word % 4 + 16 * (word / 4)) & 0x1111;
  }

  __device__ static uint32_t with_extra_bit(const Choice& choice, uint32_t low, uint32_t high) {
    const uint32_t single = choice.single();
    const uint32_t first = single == 0 ? ~0u : single == 1 ? low | high : single == 2 ? high : 0;
    return first & ~(low & high);
  }
  // The payload that is being written.
  struct Output {
    char* payload;
    char* stream;
    uint32_t room;    // bits up to the end of the block
    uint32_t zeroed;  // words of the stream that have been set to zero before their bits are
    uint32_t bits;    // in the stream
    uint32_t far;     // far positions, which grow downwards from the end of the block until the payload's size is known

    // Prepares for `count` more bits. Returns false if there is no room.
    __device__ bool extend(uint32_t count, int lane) {
      if (bits + count + 8 * far > room) return false;
      const uint32_t needed = (bits + count + 31) / 32;
      for (uint32_t word = zeroed + lane; word < needed; word += 32) store(stream + 4 * word, 0u);
      zeroed = max(zeroed, needed);
      __syncwarp();
      return true;
    }
    // `count` bits at bit `at` of the stream. The bits above them are zero.
    __device__ void put(uint32_t at, uint32_t value, uint32_t count) const {
      auto* word = reinterpret_cast<uint32_t*>(stream) + at / 32;
      if (value << at % 32 != 0) atomicOr(word, value << at % 32);
      if (at % 32 + count > 32) atomicOr(word + 1, value >> (32 - at % 32));
    }
  };

  __device__ static uint32_t byte_at(const uint32_t* bytes, uint32_t at) {
    return load<uint8_t>(reinterpret_cast<const char*>(bytes) + at);
  }

  // Where an exponent is in the table of an encoder.
  __device__ static uint32_t place(uint32_t exponent, uint32_t base) {
    if constexpr (!is_wide) return exponent;
    const int near = static_cast<int>(exponent - base) + 128;
    return exponent == 0 ? 0 : min(max(near, 1), 255);
  }

  // How each exponent is written, in scratch.lists.table.
  __device__ static void make_table(const Choice& choice, bool zero_first, Scratch& scratch, int lane) {
    const uint32_t far = device::bytes4(3 | choice.far_ones() << ones_shift);
    scratch.lists.table[lane] = far;
    scratch.lists.table[lane + 32] = far;
    __syncwarp();
    const uint32_t rank = lane;
    const bool is_zero = zero_first && rank == 0;
    int exponent = 0;
    if (!is_zero)
      exponent =
          static_cast<int>(choice.base) + offset_of_rank(order_table[choice.order], zero_first ? rank - 1 : rank);
    const bool exists = rank < choice.ranks() && exponent >= 0 && exponent <= Type.exponent_mask() &&
                        (is_zero || exponent != 0 || !zero_first);
    if (exists) {
      const int doubled = static_cast<int>(rank - choice.single());
      const int after = static_cast<int>(rank - choice.digit_ranks());
      uint32_t word;
      if (doubled < 0)
        word = rank;
      else if (after < 0)
        word = (choice.single() + doubled / 2) | doubled % 2 << extra_bit;
      else
        word = choice.paired() != 0 ? 3 | after % 2 << extra_bit | after / 2 << ones_shift : 3 | after << ones_shift;
      reinterpret_cast<uint8_t*>(scratch.lists.table)[place(exponent, choice.base)] = static_cast<uint8_t>(word);
    }
    __syncwarp();
  }

  // Writes the columns and planes of a group. untrimmed: known to store all bits, which makes the code short.
  template <bool untrimmed>
  __device__ static void put_rests(const char* in, char* out, uint32_t trim, int group, int lane) {
    const int kept = untrimmed ? Type.rest_bits() : Type.rest_bits() - static_cast<int>(trim);
    const int columns = kept / 8, planes = kept % 8;
    uint32_t upper[words];
#pragma unroll
    for (int word = 0; word < words; ++word) {
      FourRests<Type> rests(FourValues<Type>::load_from(in, group, word, lane), untrimmed ? 0 : trim);
#pragma unroll
      for (int column = 0; column < Type.rest_bits() / 8; ++column)
        if (column < columns) {
          store_bytes(out + column * Type.block_elems(), rests.lowest_bytes(), group, word, lane);
          rests.drop_lowest_bytes();
        }
      upper[word] = rests.lowest_bytes();
    }
    char* plane = out + Type.plane_offset(kept) + group * planes * plane_bytes + lane * 4;
#pragma unroll 1
    for (int i = 0; i < planes; ++i, plane += plane_bytes) store(plane, plane_of(upper, i));
  }

  // Returns false if the block is to be stored raw.
  __device__ static bool encode_group(const char* in, Output& output, uint32_t kept, uint32_t trim, bool zero_first,
                                      const Choice& choice, int group, Scratch& scratch, int lane) {
    if (trim == 0)
      put_rests<true>(in, output.payload, 0, group, lane);
    else
      put_rests<false>(in, output.payload, trim, group, lane);
    make_table(choice, zero_first, scratch, lane);
    uint32_t coded[words];
#pragma unroll
    for (int word = 0; word < words; ++word) {
      const auto four = FourValues<Type>::load_from(in, group, word, lane);
      coded[word] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        coded[word] |= byte_at(scratch.lists.table, place(four.exponent(i), choice.base)) << 8 * i;
    }
    const uint32_t low = plane_of(coded, 0), high = plane_of(coded, 1), extra = plane_of(coded, extra_bit);
    char* digits = output.payload + Type.digit_offset(kept) + group * 2 * plane_bytes + lane * 4;
    store(digits, low);
    store(digits + plane_bytes, high);
    const uint32_t has_extra = with_extra_bit(choice, low, high), escaped = low & high;
    const uint32_t own = __popc(has_extra) | __popc(escaped) << 16;
    const uint32_t up_to = device::inclusive_scan(own), before = up_to - own;
    const uint32_t total = __shfl_sync(device::all_lanes, up_to, 31);
    const uint32_t escapes = total >> 16;
    if (escapes > most_escapes) return false;
    const uint32_t pairs_at = output.bits + (total & 0xffff), ones_at = pairs_at + (choice.paired() != 0 ? escapes : 0);
    if (!output.extend(ones_at - output.bits, lane)) return false;
    if ((total & 0xffff) != 0)
      output.put(output.bits + (before & 0xffff), BitMoves(has_extra).collect(extra), own & 0xffff);
    if (choice.paired() != 0) output.put(pairs_at + (before >> 16), BitMoves(escaped).collect(extra), own >> 16);
    output.bits = ones_at;

    // Only the words of exponents without a rank have this bit.
    const uint32_t far_bit = 7 - choice.paired();
    uint32_t any = 0;
    auto* list = reinterpret_cast<uint8_t*>(scratch.lists.escapes);
    uint32_t next = before >> 16;
#pragma unroll
    for (int bit = 0; bit < 32; ++bit) {
      if ((escaped >> bit & 1) != 0) list[next++] = static_cast<uint8_t>(coded[bit / 4] >> bit % 4 * 8);
    }
#pragma unroll
    for (int word = 0; word < words; ++word) any |= coded[word];
    if (__any_sync(device::all_lanes, (any & device::bytes4(1u << far_bit)) != 0) &&
        !put_far(in, output, plane_of(coded, far_bit), choice, group, lane))
      return false;
    __syncwarp();

    // The lanes share the list evenly.
    const uint32_t share = (escapes + 31) / 32, begin = min(share * lane, escapes), end = min(begin + share, escapes);
    uint32_t own_bits = 0;
    for (uint32_t i = begin; i < end; ++i) own_bits += (list[i] >> ones_shift) + 1;
    const uint32_t bits_up_to = device::inclusive_scan(own_bits);
    const uint32_t all_bits = __shfl_sync(device::all_lanes, bits_up_to, 31);
    if (!output.extend(all_bits, lane)) return false;
    const uint32_t at = output.bits + bits_up_to - own_bits;
    auto* to = reinterpret_cast<uint32_t*>(output.stream) + at / 32;
    uint32_t held = 0, place = at % 32;  // bits of the word at `to`
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t ones = list[i] >> ones_shift, bits = (1u << ones) - 1;
      held |= bits << place;
      place += ones + 1;
      if (place >= 32) {
        atomicOr(to++, held);
        place -= 32;
        held = bits >> (ones + 1 - place);  // those that did not fit
      }
    }
    if (held != 0) atomicOr(to, held);
    output.bits += all_bits;
    __syncwarp();
    return true;
  }

  // far: which of this lane's values have no rank.
  __device__ static bool put_far(const char* in, Output& output, uint32_t far, const Choice& choice, int group,
                                 int lane) {
    const uint32_t own = __popc(far), up_to = device::inclusive_scan(own);
    const uint32_t total = __shfl_sync(device::all_lanes, up_to, 31);
    if (output.bits + 8 * (output.far + total) > output.room) return false;
    uint32_t number = output.far + up_to - own;
    bool exists = true;
    for (; far != 0; far &= far - 1, ++number) {
      const uint32_t exponent =
          exponent_of<Type>(in + device::value_offset<Type.value_bytes>(group, __ffs(far) - 1, lane));
      uint32_t position = exponent - choice.base;
      if constexpr (is_wide) {
        exists = exists && (exponent == 0 || position + 127 < 255);
        if (exponent == 0) position = zero_position;
      }
      store(output.payload + values_bytes - 1 - number, static_cast<uint8_t>(position));
    }
    output.far += total;
    return !is_wide || __all_sync(device::all_lanes, exists);
  }

  __device__ static void finish(const Output& output, uint32_t bytes, const uint32_t (&header)[groups],
                                uint32_t last_byte, int lane) {
    // The far positions move down. The last one moves first, as its place may hold none that has yet to move.
    const uint32_t end = bytes - Type.header_bytes();
#pragma unroll 1
    for (uint32_t left = (output.far + 31) / 32; left > 0; --left) {
      const uint32_t number = (left - 1) * 32 + lane;
      uint8_t position = 0;
      if (number < output.far) position = load<uint8_t>(output.payload + values_bytes - 1 - number);
      __syncwarp();
      if (number < output.far) store(output.payload + end - 1 - number, position);
      __syncwarp();
    }
    // The stream's last word is zero after its bits; the padding is shorter than 16 bytes.
    const uint32_t padding = (output.stream - output.payload) + (output.bits + 7) / 8;
    if (padding + lane < end - output.far) store(output.payload + padding + lane, uint8_t{0});
    if (lane == 0) {
      char* to = output.payload + end;
#pragma unroll
      for (int group = 0; group < groups; ++group) {
#pragma unroll
        for (int byte = 0; byte < Type.group_word_bytes(); ++byte)
          store(to++, static_cast<uint8_t>(header[group] >> 8 * byte));
      }
      store(to, static_cast<uint8_t>(last_byte));
    }
  }

  // The bytes of a lane's word in a column. A vector of float64 has only two values.
  static constexpr bool in_two_vectors = Type.vector_elems() < 4;
  __device__ static uint32_t load_bytes(const char* column, int group, int word, int lane) {
    const char* at = column + device::value_offset<Type.value_bytes>(group, 4 * word, lane) / Type.value_bytes;
    if constexpr (!in_two_vectors) return load<uint32_t>(at);
    return load<uint16_t>(at) | load<uint16_t>(at + 2 * lanes) << 16;
  }
  __device__ static void store_bytes(char* column, uint32_t bytes, int group, int word, int lane) {
    char* at = column + device::value_offset<Type.value_bytes>(group, 4 * word, lane) / Type.value_bytes;
    if constexpr (!in_two_vectors) {
      store(at, bytes);
    } else {
      store(at, static_cast<uint16_t>(bytes));
      store(at + 2 * lanes, static_cast<uint16_t>(bytes >> 16));
    }
  }

  // The payload that is being read.
  struct Input {
    const char* payload;
    const char* stream;
    uint32_t room;       // bits of the stream at most
    uint32_t last_word;  // of the stream that is within the payload
    uint32_t end;        // offset of the header
    uint32_t bits;       // read from the stream
    uint32_t far;        // far positions that were read

    __device__ uint32_t peek(uint32_t at) const {
      const uint32_t word = min(at / 32, last_word);
      return __funnelshift_r(load<uint32_t>(stream + 4 * word), load<uint32_t>(stream + 4 * min(word + 1, last_word)),
                             at % 32);
    }
  };

  // The exponents of all ranks, in scratch.lists.table. For float64, positions.
  __device__ static void make_exponents(const Choice& choice, bool zero_first, Scratch& scratch, int lane) {
    uint32_t exponent;
    if (zero_first && lane == 0) {
      exponent = is_wide ? zero_position : 0;
    } else {
      exponent = offset_of_rank(order_table[choice.order], zero_first ? lane - 1 : lane);
      if constexpr (!is_wide) exponent = (exponent + choice.base) & Type.exponent_mask();
    }
    reinterpret_cast<uint8_t*>(scratch.lists.table)[lane] = static_cast<uint8_t>(exponent);
    __syncwarp();
  }

  // Reads the ones of `escapes` digits and stores their exponents in scratch.lists.escapes.
  __device__ static bool decode_escapes(Input& input, uint32_t escapes, uint32_t pairs_at, const Choice& choice,
                                        Scratch& scratch, int lane) {
    auto* list = reinterpret_cast<uint8_t*>(scratch.lists.escapes);
    uint32_t found = 0, ones_before = 0;
    while (found < escapes) {
      if (input.bits >= input.room) return false;
      const uint32_t own_at = input.bits + 32 * lane;
      uint32_t zeros = 0;
      if (own_at < input.room) {
        zeros = ~input.peek(own_at);
        if (input.room - own_at < 32) zeros &= (1u << (input.room - own_at)) - 1;
      }
      const uint32_t own = __popc(zeros), up_to = device::inclusive_scan(own);
      const uint32_t ones_after = zeros != 0 ? 31 - device::highest_bit(zeros) : 32;
      uint32_t before = __shfl_up_sync(device::all_lanes, ones_after, 1, 32);
      if (lane == 0) before = ones_before;
      ones_before = __shfl_sync(device::all_lanes, ones_after, 31);
      const uint32_t first = found + up_to - own;
      const uint32_t last = min(first + own, escapes);
      const uint32_t far_ones = choice.far_ones();
      const auto* exponents = reinterpret_cast<const uint8_t*>(scratch.lists.table) + choice.digit_ranks();
      uint32_t most = 0, begin = 0u - before, left = zeros;
      uint32_t pairs = choice.paired() != 0 ? input.peek(pairs_at + first) : 0;
      // `ones` is below 64, so that the table contains what is read for those that are invalid.
      for (uint32_t number = first; number < last; ++number, left &= left - 1) {
        const uint32_t place = __ffs(left) - 1, ones = place - begin;
        begin = place + 1;
        most = max(most, ones);
        list[number] = exponents[(ones << choice.paired()) + (pairs & 1)];
        pairs >>= 1;
      }
      if (!__all_sync(device::all_lanes, most <= far_ones)) return false;
      if (__any_sync(device::all_lanes, most == far_ones) &&
          !take_far(input, list, zeros, before, first, last, choice, lane))
        return false;
      found += __shfl_sync(device::all_lanes, up_to, 31);
      const uint32_t own_end = first < last ? 32 * lane + begin : 0;
      input.bits += found < escapes ? 1024 : __reduce_max_sync(device::all_lanes, own_end);
    }
    __syncwarp();
    return true;
  }

  // Stores the exponents of the escapes from `first` to before `last` that are far. They end at `zeros`, after `before`
  // ones.
  __device__ static bool take_far(Input& input, uint8_t* list, uint32_t zeros, uint32_t before, uint32_t first,
                                  uint32_t last, const Choice& choice, int lane) {
    const auto for_each_far = [&](auto visit) {
      uint32_t begin = 0u - before, left = zeros;
#pragma unroll 1  // it rarely runs
      for (uint32_t number = first; number < last; ++number, left &= left - 1) {
        const uint32_t place = __ffs(left) - 1;
        if (place - begin == choice.far_ones()) visit(number);
        begin = place + 1;
      }
    };
    uint32_t own = 0;
    for_each_far([&](uint32_t) { ++own; });
    const uint32_t up_to = device::inclusive_scan(own);
    uint32_t far = input.far + up_to - own;
    input.far += __shfl_sync(device::all_lanes, up_to, 31);
    if (8 * input.far > input.room) return false;
    for_each_far([&](uint32_t number) {
      uint32_t exponent = load<uint8_t>(input.payload + input.end - 1 - far++);
      if constexpr (!is_wide) exponent = (exponent + choice.base) & Type.exponent_mask();
      list[number] = static_cast<uint8_t>(exponent);
    });
    return true;
  }

  // Transposed.
  struct Planes {
    uint32_t low, high, extra;
  };

  // Joins exponents and rests, and stores the values of a group. of_digits: exponents by digit and extra bit. next: the
  // first exponent of this lane in lists.escapes. untrimmed: known to have all bits, which makes the code short.
  template <bool untrimmed>
  __device__ static void join_words(const char* in, char* out, uint32_t trim, const Planes& digits,
                                    const uint32_t (&of_digits)[2], const Lists& lists, uint32_t next,
                                    const Choice& choice, int group, int lane) {
    const int kept = untrimmed ? Type.rest_bits() : Type.rest_bits() - static_cast<int>(trim);
    const int columns = kept / 8, planes = kept % 8;
    constexpr int most_planes = untrimmed ? Type.rest_bits() % 8 : Type.rest_bits() < 8 ? Type.rest_bits() : 7;
    uint32_t upper[most_planes + 1];
    const char* plane = in + Type.plane_offset(kept) + group * planes * plane_bytes + lane * 4;
#pragma unroll
    for (int i = 0; i < most_planes; ++i)
      upper[i] = i < planes ? transposed(load<uint32_t>(plane + i * plane_bytes)) : 0;

    constexpr int unrolled = untrimmed ? words : 1;
#pragma unroll unrolled
    for (int word = 0; word < words; ++word) {
      const uint32_t low = nibbles_of(digits.low, word), high = nibbles_of(digits.high, word);
      const uint32_t escaped = low & high;
      const uint32_t of_digit =
          __byte_perm(of_digits[0], of_digits[1], high << 2 | low << 1 | nibbles_of(digits.extra, word));
      // The exponents of up to four escapes are at `next`. Each takes the one after those that precede it.
      const uint32_t* at = lists.escapes + next / 4;
      const uint32_t four_next = __funnelshift_r(at[0], at[1], next % 4 * 8);
      const uint32_t selector = device::select_bits(escaped * 15, escaped * 0x1110 + 0x4444, 0x3210);
      const uint32_t exponents = __byte_perm(of_digit, four_next, selector & 0xffff);
      next += __popc(escaped);

      FourRests<Type> rests;
#pragma unroll
      for (int column = 0; column < Type.rest_bits() / 8; ++column)
        if (column < columns)
          rests.add_bytes(load_bytes(in + column * Type.block_elems(), group, word, lane), 8 * column + trim);
      if (planes != 0) {
        uint32_t bytes = 0;
#pragma unroll
        for (int i = 0; i < most_planes; ++i)
          if (i < planes) bytes |= __byte_perm(0x0100, 0, nibbles_of(upper[i], word)) << i;
        rests.add_bytes(bytes, 8 * columns + trim);
      }
      rests.join(exponents, choice.base).store_to(out, group, word, lane);
    }
  }

  __device__ static bool decode_group(Input& input, char* out, uint32_t kept, uint32_t trim, bool zero_first,
                                      const Choice& choice, int group, Scratch& scratch, int lane) {
    const char* digits = input.payload + Type.digit_offset(kept) + group * 2 * plane_bytes + lane * 4;
    const uint32_t low = load<uint32_t>(digits), high = load<uint32_t>(digits + plane_bytes);
    const uint32_t has_extra = with_extra_bit(choice, low, high), escaped = low & high;
    const uint32_t own = __popc(has_extra) | __popc(escaped) << 16;
    const uint32_t up_to = device::inclusive_scan(own), before = up_to - own;
    const uint32_t total = __shfl_sync(device::all_lanes, up_to, 31);
    const uint32_t escapes = total >> 16, pairs_at = input.bits + (total & 0xffff);
    const uint32_t ones_at = pairs_at + (choice.paired() != 0 ? escapes : 0);
    if (escapes > most_escapes || ones_at > input.room) return false;
    uint32_t extra = 0;
    if ((total & 0xffff) != 0) extra = BitMoves(has_extra).distribute(input.peek(input.bits + (before & 0xffff)));
    input.bits = ones_at;
    make_exponents(choice, zero_first, scratch, lane);
    if (!decode_escapes(input, escapes, pairs_at, choice, scratch, lane)) return false;

    // By digit and extra bit.
    uint32_t of_digits[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      const uint32_t digit = i / 2, single = choice.single();
      const uint32_t rank = digit < single ? digit : single + 2 * (digit - single) + i % 2;
      of_digits[i / 4] |= byte_at(scratch.lists.table, rank) << i % 4 * 8;
    }
    const Planes planes{transposed(low), transposed(high), transposed(extra)};
    if (trim == 0)
      join_words<true>(input.payload, out, 0, planes, of_digits, scratch.lists, before >> 16, choice, group, lane);
    else
      join_words<false>(input.payload, out, trim, planes, of_digits, scratch.lists, before >> 16, choice, group, lane);
    __syncwarp();  // the next group overwrites the scratch
    return true;
  }
};

}  // namespace narrowcast::codec::dense
