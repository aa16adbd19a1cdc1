// Layout of packets in each rank's scratch, the same on all ranks: a PacketState, then two buffers, which calls use
// alternately. A buffer is an array of rows: in GPU memory first the rows of short packets, then those of lines, and in
// host memory rows of words. Each row has a slot for every other rank, and only that rank writes to it. A row never
// changes its form, so a flag is never read from memory that previously held data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/peer/call_word.h"
#include "channel/peer/peers.h"

namespace narrowcast::channel {

// A warp moves one row at a time, by a few stores of 16 bytes per lane. A lane's part of a row is a unit of 8-byte
// words. The words of a row are assigned to the lanes so that the warp accesses whole lines of the user's memory.
inline constexpr uint32_t row_lanes = 32;
inline constexpr uint32_t store_bytes = row_lanes * 16;  // of one store by a warp

// The forms of packets. max_buffer_bytes: the most bytes that one call may send to a rank, from all sources together.
enum class PacketForm : uint8_t { words, short_packets, lines };

// 4 bytes of data and a flag of 4 bytes: 8 bytes are written and read at once in host memory, too, over any link. Each
// store of a lane contains two.
struct WordPacket {
  static constexpr uint32_t bytes = 8, max_buffer_bytes = 2 << 20;
  static constexpr bool is_word = true, is_line = false;
  static constexpr int stores = 2, unit_words = 2;
  static constexpr uint32_t row_bytes = row_lanes * unit_words * 8;  // of data
  static constexpr int word_columns = 1;
  static constexpr uint32_t word_stride = row_lanes * 8;
  static constexpr bool has_column(int, uint32_t) { return true; }
  static constexpr uint32_t column_offset(int, uint32_t lane) { return lane * 8; }
};

// 12 bytes of data and a flag of 4 bytes. Each packet is received independently of the others.
struct ShortPacket {
  static constexpr uint32_t bytes = 16, max_buffer_bytes = 2 << 20;
  static constexpr bool is_word = false, is_line = false;
  static constexpr int stores = 2, unit_words = 3;
  static constexpr uint32_t row_bytes = row_lanes * unit_words * 8;  // of data
  // A lane's word i is i / word_columns times word_stride bytes after its word i % word_columns.
  static constexpr int word_columns = 1;
  static constexpr uint32_t word_stride = row_lanes * 8;
  static constexpr bool has_column(int, uint32_t) { return true; }
  // Offset of the first word of a column in the data of the row.
  static constexpr uint32_t column_offset(int, uint32_t lane) { return lane * 8; }
};

// 120 bytes of data and 8 bytes with the flag, stored by 8 lanes together, 16 bytes each. Sends a fifth less over the
// link than short packets.
struct LinePacket {
  static constexpr uint32_t bytes = 128, max_buffer_bytes = 14 << 20;
  static constexpr bool is_word = false, is_line = true;
  static constexpr uint32_t lanes = bytes / 16;
  static constexpr int stores = 2, unit_words = 2 * stores;
  static constexpr uint32_t row_bytes = stores * (store_bytes / bytes) * (bytes - 8);
  // The last lane of a line has the flag instead of every second word.
  static constexpr bool has_flag(uint32_t lane) { return lane % lanes == lanes - 1; }
  static constexpr int word_columns = 2;
  static constexpr uint32_t word_stride = row_bytes / stores;
  static constexpr bool has_column(int column, uint32_t lane) { return column == 0 || !has_flag(lane); }
  static constexpr uint32_t column_offset(int column, uint32_t lane) {
    return (column == 0 ? lane : row_lanes + lane - lane / lanes) * 8;
  }
};

// Calls body.operator()<Packet>() for the packets of a form.
template <typename Body>
constexpr auto with_packet(PacketForm form, Body body) {
  switch (form) {
    case PacketForm::words: return body.template operator()<WordPacket>();
    case PacketForm::short_packets: return body.template operator()<ShortPacket>();
    default: return body.template operator()<LinePacket>();
  }
}

inline constexpr uint32_t max_packet_ctas = cta_states;

// State that a rank keeps from call to call; initially zero.
struct PacketState {
  alignas(128) CtaState ctas[cta_states];          // Peers::ctas
  alignas(128) uint32_t tokens[2][max_gpu_ranks];  // by buffer and source; written by the other ranks
  uint32_t ended_ctas;                             // in a call that clears its buffer
  alignas(128) CallWords call_words;               // for collectives by packets and all calls by blocks
};
static_assert(sizeof(PacketState) == 1792);

// Number of rows of a form, which limits what a rank may send to another in one call. A multiple of 8, so that for
// calls that use half of the rows, half of them hold a multiple of 128 bytes.
template <typename Packet>
constexpr uint32_t packet_rows(int ranks) {
  if (ranks < 2) return 0;
  return Packet::max_buffer_bytes / (Packet::stores * store_bytes * static_cast<uint32_t>(ranks - 1)) / 8 * 8;
}
// Size of all rows of a form.
template <typename Packet>
constexpr uint32_t packet_rows_bytes(int ranks) {
  return packet_rows<Packet>(ranks) * Packet::stores * store_bytes * static_cast<uint32_t>(ranks - 1);
}
// in_host: the areas are in host memory.
constexpr uint32_t packet_buffer_bytes(int ranks, bool in_host) {
  if (in_host) return packet_rows_bytes<WordPacket>(ranks);
  return packet_rows_bytes<ShortPacket>(ranks) + packet_rows_bytes<LinePacket>(ranks);
}
// Where the rows of a form begin in a buffer.
constexpr uint32_t packet_rows_begin(PacketForm form, int ranks) {
  return form == PacketForm::lines ? packet_rows_bytes<ShortPacket>(ranks) : 0;
}
constexpr size_t packet_area_bytes(int ranks, bool in_host) {
  return sizeof(PacketState) + size_t{2} * packet_buffer_bytes(ranks, in_host);
}

}  // namespace narrowcast::channel
