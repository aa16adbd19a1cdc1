// A call by packets in the form that its kernel uses, which is the same for all operations: the pieces that a rank
// sends and receives, and the peers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "channel/packet/packets.cuh"
#include "device/early_launch.cuh"
#include "narrowcast/types.h"
#include "select/packet_shape.h"

namespace narrowcast::executor::cuda {

using namespace select;

// Passed by value as a kernel parameter. Piece p of `send` goes to rank p, and piece p of `recv` comes from rank p. The
// pieces of a buffer are a stride apart; the stride is 0 if all ranks get the same piece.
struct Exchange {
  const char* send;
  char* recv;
  uint32_t send_stride, recv_stride;
  uint32_t piece_bytes, last_bytes;  // the last rank's piece may be shorter, but not empty
  uint32_t rows;                     // rows of a piece
  uint32_t buffer_rows;              // rows of a buffer for this form of packets
  uint32_t buffer_begin;             // offset of these rows in bytes
  uint32_t buffer_bytes;             // size of a buffer
  uint32_t mark;                     // hash of the call (channel/peer/call_word.h)
  // A warp receives a job, or a row of a reduction, after it has sent this many later ones. 0: it has only one.
  uint32_t recv_delay;
  uint32_t to, from;                // bit masks of the ranks to send to and to receive from
  bool send_aligned, recv_aligned;  // all pieces begin at multiples of 8
  bool copies_own;                  // moves: copy this rank's piece from send to recv
  bool gathers;                     // reductions: every rank sends its result to the others, as a piece of `recv`
  uint32_t inverse_ranks;           // n / ranks is the upper half of the product of n and this, for n < 2^29

  __device__ const char* send_piece(int rank) const { return send + static_cast<uint32_t>(rank) * send_stride; }
  __device__ char* recv_piece(int rank) const { return recv + static_cast<uint32_t>(rank) * recv_stride; }
  __device__ uint32_t bytes_of(int rank, int ranks) const { return rank == ranks - 1 ? last_bytes : piece_bytes; }
};

// The rank `steps` after this one. Sending in this order, ranks start with different peers.
__device__ __forceinline__ int rank_after(const channel::Peers& peers, int steps) {
  const int rank = peers.rank + steps;
  return rank < peers.ranks ? rank : rank - peers.ranks;
}

// Kernels are for at most `Others` other ranks. Those for one are for exactly two ranks, and know it.
template <int Others>
__device__ __forceinline__ bool has_rank_after(const channel::Peers& peers, int steps) {
  return Others == 1 || steps < peers.ranks;
}
template <typename Packet, int Others>
using PacketsOf = channel::Packets<Packet, Others == 1 ? 2 : 0>;

template <int Others, typename Packet>
__device__ __forceinline__ void send_to_others(const PacketsOf<Packet, Others>& packets, const channel::Peers& peers,
                                               channel::UnitPlace<Packet> place, const channel::Unit<Packet>& unit) {
#pragma unroll
  for (int i = 0; i < Others; ++i)
    if (has_rank_after<Others>(peers, i + 1)) packets.send(rank_after(peers, i + 1), place, unit);
}

// A row to send to one rank, and the same row to receive from one rank. Jobs are ordered by the distance of the peer:
// every rank first sends to the next rank and receives from the previous one, so no port of a switch is congested. The
// local row is last.
template <typename Packet>
struct Job {
  int to, from;
  channel::UnitPlace<Packet> place;

  // Subtracts instead of dividing number by rows: a division takes many instructions, and there are few ranks.
  __device__ __forceinline__ Job(const channel::Peers& peers, uint32_t rows, uint32_t number) {
    int distance = 1;
#pragma unroll 1
    for (; number >= rows && distance < peers.ranks; ++distance) number -= rows;
    to = peers.rank + distance - (peers.rank + distance < peers.ranks ? 0 : peers.ranks);
    from = peers.rank - distance + (peers.rank < distance ? peers.ranks : 0);
    place = {number, threadIdx.x % 32};
  }
};

// The jobs of a row one after another: job i sends it to the rank i + 1 after this one, and receives it from the rank
// i before it. So the first job copies the local row, which is also the row that it sends if all ranks get the same
// piece, and the last job only receives. Between two ranks a warp either sends or receives, and does not wait for both
// a load and a packet.
template <typename Packet>
struct RowJob {
  int to, from;  // this rank if there is nothing to send, and for the local row
  channel::UnitPlace<Packet> place;

  __device__ __forceinline__ RowJob(const channel::Peers& peers, const Exchange& exchange, uint32_t number) {
    const uint32_t row = __umulhi(number, exchange.inverse_ranks);
    const auto distance = static_cast<int>(number - row * static_cast<uint32_t>(peers.ranks));
    to = rank_after(peers, distance + 1);
    from = peers.rank - distance + (peers.rank < distance ? peers.ranks : 0);
    place = {row, threadIdx.x % 32};
  }
};

// peers.scratch: the packet areas of the ranks.
cudaError_t launch_packet_move(const channel::Peers& peers, const Exchange& exchange, size_t value_bytes,
                               const PacketShape& shape, cudaStream_t stream);
cudaError_t launch_packet_reduction(const channel::Peers& peers, const Exchange& exchange, ncast_dtype dtype,
                                    ncast_redop op, const PacketShape& shape, cudaStream_t stream);

// Whether all pieces are aligned and consist of whole words of 8 bytes.
bool has_whole_words(const Exchange& exchange);
// Faster kernels for short exchanges, but not in packets of words. is_short(): the data are aligned whole words and a
// warp has at most one row. Another rank's part of the same call may not be short.
bool is_short(const Exchange& exchange);
constexpr bool has_short_sum(ncast_dtype dtype) {
  return dtype == NCAST_FLOAT16 || dtype == NCAST_BFLOAT16 || dtype == NCAST_FLOAT32;
}
cudaError_t launch_short_move(const channel::Peers& peers, const Exchange& exchange, const PacketShape& shape,
                              cudaStream_t stream);
// For an exchange in which every rank sends to and receives from all others, and has_short_sum(dtype).
cudaError_t launch_short_sum(const channel::Peers& peers, const Exchange& exchange, ncast_dtype dtype,
                             const PacketShape& shape, cudaStream_t stream);

}  // namespace narrowcast::executor::cuda
