// Operations by packets that only move data. A warp's job is a row of what goes to one rank, and the same row of what
// comes from one.
#include "collective/cuda/kernels.h"
#include "collective/cuda/packet_exchange.cuh"
#include "collective/cuda/unit_memory.cuh"

namespace narrowcast::collective::cuda {
namespace {

// Calls body(rank, place) for this thread's units: `steps` 0 is this rank itself, the next ones follow it, so that the
// ranks do not all send to the same one first.
template <typename Body>
__device__ __forceinline__ void for_each_job(const channel::Peers& peers, uint32_t rows, Body body) {
  const auto ranks = static_cast<uint32_t>(peers.ranks);
  const uint32_t warps = blockDim.x / 32;
#pragma unroll 1
  for (uint32_t job = blockIdx.x * warps + threadIdx.x / 32; job < rows * ranks; job += gridDim.x * warps) {
    const uint32_t row = job / ranks, steps = job % ranks;
    const uint32_t rank = peers.rank + steps;
    if (!body(static_cast<int>(rank < ranks ? rank : rank - ranks), UnitPlace{row, threadIdx.x % 32})) return;
  }
}

// In place is allowed where a rank sends only the piece that it keeps, and then nobody writes that piece: no thread
// writes what another has still to read.
template <typename Value>
__global__ void __launch_bounds__(most_packet_warps * 32)
    move_kernel(const __grid_constant__ channel::Peers peers, const __grid_constant__ Exchange exchange) {
  channel::Packets packets(peers, exchange.buffer_bytes);
  const channel::RankMask others = ((1u << peers.ranks) - 1) & ~(1u << peers.rank);
  const uint32_t bytes = exchange.piece_bytes;

  for_each_job(peers, exchange.rows, [&](int rank, UnitPlace place) {
    const bool is_own = rank == peers.rank;
    if (place.data_offset() < bytes && (is_own ? exchange.keeps : (exchange.to >> rank & 1) != 0)) {
      const Unit unit = load_unit<Value>(exchange.send_piece(rank), place, bytes, exchange.send_aligned);
      packets.begin();
      if (is_own) {
        store_unit<Value>(exchange.recv_piece(rank), place, bytes, exchange.recv_aligned, unit);
      } else {
        packets.send(rank, place, unit);
      }
    }
    return true;
  });
  packets.begin();
  packets.send_tokens(others & ~exchange.to);
  packets.advance();

  for_each_job(peers, exchange.rows, [&](int rank, UnitPlace place) {
    if (place.data_offset() >= bytes || (exchange.from >> rank & 1) == 0) return true;
    Unit unit;
    if (!packets.receive_from(rank, place, unit)) return false;
    store_unit<Value>(exchange.recv_piece(rank), place, bytes, exchange.recv_aligned, unit);
    return true;
  });
  packets.wait_for_tokens(others & ~exchange.from);
  packets.finish();
}

template <typename Value>
cudaError_t launch(const channel::Peers& peers, const Exchange& exchange, uint32_t ctas, uint32_t warps,
                   cudaStream_t stream) {
  move_kernel<Value><<<ctas, warps * 32, 0, stream>>>(peers, exchange);
  return cudaGetLastError();
}

}  // namespace

cudaError_t load_packet_moves() {
  for (const auto kernel : {move_kernel<uint8_t>, move_kernel<uint16_t>, move_kernel<uint32_t>, move_kernel<uint64_t>})
    if (const cudaError_t error = load_kernel(kernel)) return error;
  return cudaSuccess;
}

cudaError_t launch_packet_move(const channel::Peers& peers, const Exchange& exchange, size_t value_bytes, uint32_t ctas,
                               uint32_t warps, cudaStream_t stream) {
  switch (value_bytes) {
    case 1: return launch<uint8_t>(peers, exchange, ctas, warps, stream);
    case 2: return launch<uint16_t>(peers, exchange, ctas, warps, stream);
    case 4: return launch<uint32_t>(peers, exchange, ctas, warps, stream);
    case 8: return launch<uint64_t>(peers, exchange, ctas, warps, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace narrowcast::collective::cuda
