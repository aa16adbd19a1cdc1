// Where packets lie in a rank's scratch, the same on all ranks: the state, then two buffers, which calls use by turns.
// A buffer is an array of rows, first those of short packets, then those of lines; each has a place for every other
// rank, which alone writes there. A row is always of the same kind: a flag never comes to lie where data of old are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/peer/call_word.h"
#include "channel/peer/peers.h"

namespace narrowcast::channel {

// Data come in units of 8-byte words, a lane's part of a row; a warp moves a row at a time, which is some stores of 16
// bytes a lane. The words of a row are dealt to the lanes so that a warp touches whole lines of the user's memory.
inline constexpr uint32_t row_lanes = 32;
inline constexpr uint32_t store_bytes = row_lanes * 16;  // of a warp

// 12 bytes of data and 4 of flag. Nothing waits for anything but its own packet.
struct ShortPacket {
  static constexpr uint32_t bytes = 16;
  static constexpr bool is_line = false;
  static constexpr int stores = 2, unit_words = 3;
  static constexpr uint32_t row_bytes = row_lanes * unit_words * 8;  // of data
  static constexpr bool has_word(int, uint32_t) { return true; }
  // Of a word in its row.
  static constexpr uint32_t word_offset(int word, uint32_t lane) {
    return static_cast<uint32_t>(word) * row_lanes * 8 + lane * 8;
  }
};

// 120 bytes of data and 8 with the flag, which 8 lanes store at once, each 16: a fifth less on the link.
struct LinePacket {
  static constexpr uint32_t bytes = 128;
  static constexpr bool is_line = true;
  static constexpr uint32_t lanes = bytes / 16;
  static constexpr int stores = 2, unit_words = 2 * stores;
  static constexpr uint32_t row_bytes = stores * (store_bytes / bytes) * (bytes - 8);
  // A line's last lane has its flag in place of every second word.
  static constexpr bool has_flag(uint32_t lane) { return lane % lanes == lanes - 1; }
  static constexpr bool has_word(int word, uint32_t lane) { return word % 2 == 0 || !has_flag(lane); }
  static constexpr uint32_t word_offset(int word, uint32_t lane) {
    const uint32_t store = static_cast<uint32_t>(word) / 2 * (row_bytes / stores);
    return store + (word % 2 == 0 ? lane : row_lanes + lane - lane / lanes) * 8;
  }
};

// body.operator()<Packet>(), of either kind.
template <typename Body>
constexpr auto with_packet(bool lines, Body body) {
  return lines ? body.template operator()<LinePacket>() : body.template operator()<ShortPacket>();
}

inline constexpr uint32_t max_packet_ctas = cta_states;
// What one call may send to a rank, all sources together, by either kind.
inline constexpr uint32_t max_short_bytes = 2 << 20, max_line_bytes = 14 << 20;

// What a rank keeps from one call to the next; initially zero.
struct PacketState {
  alignas(128) CtaState ctas[cta_states];          // Peers::ctas
  alignas(128) uint32_t tokens[2][max_gpu_ranks];  // by turn and source; written by the other ranks
  uint32_t ended_ctas;                             // of the call that clears a buffer
  alignas(128) CallWords call_words;               // of collectives by packets and of all calls by blocks
};
static_assert(sizeof(PacketState) == 1792);

// Rows of a kind: what a rank may send to another in one call. A multiple of 8, for calls that halve it: half holds a
// multiple of 128 bytes.
template <typename Packet>
constexpr uint32_t packet_rows(int ranks) {
  if (ranks < 2) return 0;
  const uint32_t most = Packet::is_line ? max_line_bytes : max_short_bytes;
  return most / (Packet::stores * store_bytes * static_cast<uint32_t>(ranks - 1)) / 8 * 8;
}
// Of the rows of a kind, from their first to their last.
template <typename Packet>
constexpr uint32_t packet_rows_bytes(int ranks) {
  return packet_rows<Packet>(ranks) * Packet::stores * store_bytes * static_cast<uint32_t>(ranks - 1);
}
constexpr uint32_t packet_buffer_bytes(int ranks) {
  return packet_rows_bytes<ShortPacket>(ranks) + packet_rows_bytes<LinePacket>(ranks);
}
constexpr size_t packet_area_bytes(int ranks) { return sizeof(PacketState) + size_t{2} * packet_buffer_bytes(ranks); }

}  // namespace narrowcast::channel
