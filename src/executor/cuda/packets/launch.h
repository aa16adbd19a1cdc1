// Collectives of small messages by packets (channel/packet/packets.cuh): one kernel, no barrier, no fence, and the
// latency of one transfer, or of two for longer all-reduces. All ranks make these calls in the same order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "channel/peer/peers.h"
#include "narrowcast/types.h"
#include "operation/operation.h"
#include "select/packet_shape.h"

namespace narrowcast::executor::cuda {

using namespace select;

// One rank's part in one call. Buffers, counts and in-place rules are those of narrowcast/comm.h: each rank sends
// `count` values to another, and piece r of a buffer of ranks * count values belongs to rank r. A rank passes NULL for
// buffers that it does not use: recv of ranks other than the root of reduce and gather, send of ranks other than the
// root of broadcast and scatter.
struct PacketCall {
  operation::Operation operation;
  const void* send;
  void* recv;
  uint64_t count;
  ncast_dtype dtype;
  ncast_redop redop;  // of reductions
  int root;           // of broadcast, reduce, gather and scatter
  uint32_t mark = 1;  // a hash of the call (call_mark): ranks with different marks report call_mismatch
};

// Launches one kernel; copies if there is one rank; does nothing if count is 0. peers.scratch: each rank's scratch
// memory. Returns cudaErrorInvalidValue if the operation or message cannot run by packets in this shape.
cudaError_t launch_packets(const channel::Peers& peers, size_t scratch_offset, const PacketCall& call,
                           const PacketShape& shape, cudaStream_t stream);

}  // namespace narrowcast::executor::cuda
