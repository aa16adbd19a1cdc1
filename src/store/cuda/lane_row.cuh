// The coder `window` of short rows (docs/format/rows.md): each lane decodes a row of its own in registers: 32 bfloat16
// values in a slot of 64 bytes.
#pragma once

#include <cstdint>

#include "../../codec/window/packing.cuh"
#include "../../codec/window/parts.cuh"
#include "../../device/warp.cuh"
#include "../rows/window_layout.h"
#include "window_escapes.cuh"

namespace narrowcast::store::cuda {

class LaneRow {
  static constexpr window::ValueType type = window::bfloat16;
  static constexpr uint32_t words = window::group_words, rest_word = header_bytes / 4, codes_word = rest_word + words;

 public:
  static constexpr uint32_t slot_words = 16, vectors = 4;

  // slot: in shared memory, 16-byte aligned. Loads all of it.
  __device__ explicit LaneRow(const char* slot) {
#pragma unroll
    for (uint32_t i = 0; i < vectors; ++i) {
      const uint4 four = reinterpret_cast<const uint4*>(slot)[i];
      words_[4 * i] = four.x, words_[4 * i + 1] = four.y, words_[4 * i + 2] = four.z, words_[4 * i + 3] = four.w;
    }
  }

  // Decodes the row. False if this is left to WindowRow: for payloads with many escapes or far ones, and damaged ones.
  __device__ bool decode(uint4 (&row)[vectors]) const {
    const uint32_t header = words_[0], width = header >> row_width_shift & row_width_mask;
    const uint32_t base = header >> row_base_shift & row_base_mask, count = header >> row_escapes_shift;
    const uint32_t escape_code = (1u << width) - 1;
    uint32_t codes[words], tokens[2];
    switch (width) {
      case 1: unpack_from<1>(codes, tokens); break;
      case 2: unpack_from<2>(codes, tokens); break;
      case 3: unpack_from<3>(codes, tokens); break;
      case 4: unpack_from<4>(codes, tokens); break;
      default: unpack_from<5>(codes, tokens); break;
    }
    const LaneEscapes escapes(codes, escape_code);
    // Two words of tokens are always in the slot.
    const bool is_usual = width - 1 < static_cast<uint32_t>(type.max_width()) &&
                          base + (1u << width) <= 1u << type.exponent_bits && escapes.count() == count && escapes.few();
    // Not those after the last one.
    tokens[0] &= ~__funnelshift_lc(0, ~0u, 4 * count);
    tokens[1] &= ~__funnelshift_lc(0, ~0u, 4 * (max(count, 8u) - 8));
    const Tokens<type> to(base, escape_code);
    uint32_t rare = to.are_rare();
    const EightBytes lower = to.eight_exponents(tokens[0], &rare);
    const EightBytes upper =
        to.eight_exponents(__funnelshift_rc(tokens[0], tokens[1], 4 * escapes.before_column(2)), &rare);
    escapes.for_each_word(lower, upper, [&](int word, uint32_t bytes) {
      codes[word] = device::select_bits(escapes.mask(word), bytes, codes[word] + device::bytes4(base));
    });
#pragma unroll
    for (uint32_t i = 0; i < vectors; ++i) {
      const window::Heads first = window::heads_of<type>(codes[2 * i], 0, words_[rest_word + 2 * i], 0);
      const window::Heads second = window::heads_of<type>(codes[2 * i + 1], 0, words_[rest_word + 2 * i + 1], 0);
      row[i] = {first.pair[0], first.pair[1], second.pair[0], second.pair[1]};
    }
    return is_usual && rare == 0;
  }

 private:
  template <uint32_t Width>
  __device__ void unpack_from(uint32_t (&codes)[words], uint32_t (&tokens)[2]) const {
    uint32_t packed[Width];
#pragma unroll
    for (uint32_t i = 0; i < Width; ++i) packed[i] = words_[codes_word + i];
    window::unpack<Width>(packed, codes);
    tokens[0] = words_[codes_word + Width];
    tokens[1] = words_[codes_word + Width + 1];
  }

  uint32_t words_[slot_words];
};

}  // namespace narrowcast::store::cuda
