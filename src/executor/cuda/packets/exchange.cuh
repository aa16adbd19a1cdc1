// A call by packets as its kernel sees it: which piece goes to whom and comes from whom, whatever the operation.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "channel/packet/packets.cuh"
#include "device/early_launch.cuh"
#include "narrowcast/types.h"
#include "select/packet_shape.h"

namespace narrowcast::executor::cuda {

using namespace select;

// By value in a kernel's parameters. Piece p of `send` goes to rank p, piece p of `recv` comes from it; they lie a
// stride apart, which is 0 where all are the same one.
struct Exchange {
  const char* send;
  char* recv;
  uint32_t send_stride, recv_stride;
  uint32_t piece_bytes, last_bytes;  // the last rank's piece may be shorter, but not empty
  uint32_t rows;                     // of a piece
  uint32_t buffer_rows;              // of this kind of packet
  uint32_t buffer_begin;             // of these, in bytes
  uint32_t buffer_bytes;             // all of it
  uint32_t mark;                     // of the call (channel/peer/call_word.h)
  uint32_t behind;                   // a warp receives so many jobs, or rows, behind what it sends; 0: after all
  uint32_t to, from;                 // other ranks, as bits
  bool send_aligned, recv_aligned;   // all pieces begin at multiples of 8
  bool keeps;                        // moves: this rank's piece goes from send to recv
  bool gathers;                      // reductions: the ranks pass their results on, as pieces of `recv`

  __device__ const char* send_piece(int rank) const { return send + static_cast<uint32_t>(rank) * send_stride; }
  __device__ char* recv_piece(int rank) const { return recv + static_cast<uint32_t>(rank) * recv_stride; }
  __device__ uint32_t bytes_of(int rank, int ranks) const { return rank == ranks - 1 ? last_bytes : piece_bytes; }
};

// The rank that is `steps` behind this one: nobody sends to the same rank first.
__device__ __forceinline__ int rank_behind(const channel::Peers& peers, int steps) {
  const int rank = peers.rank + steps;
  return rank < peers.ranks ? rank : rank - peers.ranks;
}

template <int Others, typename Packet>
__device__ __forceinline__ void send_to_others(const channel::Packets<Packet>& packets, const channel::Peers& peers,
                                               channel::UnitPlace<Packet> place, const channel::Unit<Packet>& unit) {
#pragma unroll
  for (int i = 0; i < Others; ++i)
    if (i + 1 < peers.ranks) packets.send(rank_behind(peers, i + 1), place, unit);
}

// A row of what goes to one rank, and of what comes from one. Jobs are numbered by distance: at first every rank sends
// to the one that follows it and receives from the one before it, which crosses a switch without a jam; last comes the
// rank itself.
template <typename Packet>
struct Job {
  int to, from;
  channel::UnitPlace<Packet> place;

  __device__ __forceinline__ Job(const channel::Peers& peers, uint32_t rows, uint32_t number) {
    const int distance = static_cast<int>(number / rows) + 1;
    to = peers.rank + distance - (peers.rank + distance < peers.ranks ? 0 : peers.ranks);
    from = peers.rank - distance + (peers.rank < distance ? peers.ranks : 0);
    place = {number % rows, threadIdx.x % 32};
  }
};

// peers.scratch leads to the packets' areas.
cudaError_t launch_packet_move(const channel::Peers& peers, const Exchange& exchange, size_t value_bytes,
                               const PacketShape& shape, cudaStream_t stream);
cudaError_t launch_packet_reduction(const channel::Peers& peers, const Exchange& exchange, ncast_dtype dtype,
                                    ncast_redop op, const PacketShape& shape, cudaStream_t stream);

// The same by kernels with less to do. Is the exchange one of theirs: of whole words, aligned, a row of which each warp
// has one at most? Another rank's may be none.
bool is_short(const Exchange& exchange);
bool has_short_sum(ncast_dtype dtype);
cudaError_t launch_short_move(const channel::Peers& peers, const Exchange& exchange, const PacketShape& shape,
                              cudaStream_t stream);
// Of an exchange with all other ranks, both ways; a dtype that has it.
cudaError_t launch_short_sum(const channel::Peers& peers, const Exchange& exchange, ncast_dtype dtype,
                             const PacketShape& shape, cudaStream_t stream);

}  // namespace narrowcast::executor::cuda
