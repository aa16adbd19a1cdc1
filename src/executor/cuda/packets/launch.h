// Collectives of small messages by packets (channel/packet/packets.cuh): one kernel, no barrier, no fence, and the
// latency of one flight, or of two for the longer all-reduces. All ranks make the same sequence of these calls.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "channel/peer/peers.h"
#include "narrowcast/types.h"
#include "select/packet_shape.h"

namespace narrowcast::executor::cuda {

using namespace select;

// What one rank does in one call. Buffers, counts and what is allowed in place are those of narrowcast/comm.h: `count`
// values are what each rank sends to another, and where ranks * count are sent or received, piece r is rank r's.
// Buffers that a rank does not use (recv of those that are not the root of reduce and gather, send of those that are
// not the root of broadcast and scatter) may be NULL.
struct PacketCall {
  PacketOperation operation;
  const void* send;
  void* recv;
  uint64_t count;
  ncast_dtype dtype;
  ncast_redop redop;  // of reductions
  int root;           // of broadcast, reduce, gather and scatter
  uint32_t mark = 1;  // of the call (call_mark): ranks whose marks differ get call_mismatch
};

// peers.scratch leads to each rank's scratch. Launches one kernel, or copies if there is one rank; nothing when count
// is
// 0. cudaErrorInvalidValue: the message is too long, or the shape not possible.
cudaError_t launch_packets(const channel::Peers& peers, size_t scratch_offset, const PacketCall& call,
                           const PacketShape& shape, cudaStream_t stream);

}  // namespace narrowcast::executor::cuda
