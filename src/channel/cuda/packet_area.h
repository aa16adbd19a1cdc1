// Where packets lie in a rank's scratch, the same on all ranks: the state, then two buffers, which calls use by turns. A
// buffer is an array of rows; each has a place for every other rank, which alone writes there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/cuda/peers.h"

namespace narrowcast::channel {

// A packet is 16 bytes: 12 of data, 4 of flag. Data come in units of three 8-byte words, which fill two packets and hold
// whole values of any type; a warp moves a row of 32 units at a time.
inline constexpr uint32_t unit_words = 3;
inline constexpr uint32_t row_units = 32;
inline constexpr uint32_t row_bytes = row_units * unit_words * 8;  // of data
inline constexpr uint32_t row_packet_bytes = row_units * 2 * 16;   // of packets
inline constexpr uint32_t most_packet_ctas = 64;
// What one call may send to a rank, all sources together: 6.75 MiB of data.
inline constexpr uint32_t most_buffer_bytes = 9 << 20;

// What a rank keeps from one call to the next; zero at first.
struct PacketState {
  alignas(128) uint32_t sequences[most_packet_ctas];  // of the last call: CTA i reads the i-th; all are the same
  alignas(128) uint32_t tokens[2][max_gpu_ranks];     // by turn and source; written by the other ranks
  alignas(128) uint32_t ended_ctas;                   // of the call that clears a buffer
};
static_assert(sizeof(PacketState) == 512);

// Rows of a buffer: what a rank may send to another in one call. Even, for calls that halve it.
constexpr uint32_t packet_rows(int ranks) {
  return ranks < 2 ? 0 : most_buffer_bytes / (row_packet_bytes * static_cast<uint32_t>(ranks - 1)) / 2 * 2;
}
constexpr uint32_t packet_buffer_bytes(int ranks) {
  return packet_rows(ranks) * row_packet_bytes * static_cast<uint32_t>(ranks - 1);
}
constexpr size_t packet_area_bytes(int ranks) { return sizeof(PacketState) + size_t{2} * packet_buffer_bytes(ranks); }

}  // namespace narrowcast::channel
