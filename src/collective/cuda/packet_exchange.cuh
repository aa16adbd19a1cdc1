// A call by packets as its kernel sees it: which piece goes to whom and comes from whom, whatever the operation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "channel/cuda/peers.h"
#include "collective/cuda/packet_shape.h"
#include "narrowcast/types.h"

namespace narrowcast::collective::cuda {

// By value in a kernel's parameters. Piece p of `send` goes to rank p, piece p of `recv` comes from it; they lie a stride
// apart, which is 0 where all are the same one.
struct Exchange {
  const char* send;
  char* recv;
  uint32_t send_stride, recv_stride;
  uint32_t piece_bytes, last_bytes;  // the last rank's piece may be shorter, but not empty
  uint32_t rows;                     // of a piece
  uint32_t buffer_rows;              // of this kind of packet
  uint32_t buffer_begin;             // of these, in bytes
  uint32_t buffer_bytes;             // all of it
  uint32_t behind;                   // a warp receives so many jobs, or rows, behind what it sends; 0: after all
  uint32_t to, from;                 // other ranks, as bits
  bool send_aligned, recv_aligned;   // all pieces begin at multiples of 8
  bool keeps;                        // moves: this rank's piece goes from send to recv
  bool gathers;                      // reductions: the ranks pass their results on, as pieces of `recv`

  __device__ const char* send_piece(int rank) const { return send + static_cast<uint32_t>(rank) * send_stride; }
  __device__ char* recv_piece(int rank) const { return recv + static_cast<uint32_t>(rank) * recv_stride; }
  __device__ uint32_t bytes_of(int rank, int ranks) const { return rank == ranks - 1 ? last_bytes : piece_bytes; }
};

// peers.scratch leads to the packets' areas.
cudaError_t launch_packet_move(const channel::Peers& peers, const Exchange& exchange, size_t value_bytes,
                               const PacketShape& shape, cudaStream_t stream);
cudaError_t launch_packet_reduction(const channel::Peers& peers, const Exchange& exchange, ncast_dtype dtype,
                                    ncast_redop op, const PacketShape& shape, cudaStream_t stream);

}  // namespace narrowcast::collective::cuda
