// How a call by blocks is divided into pieces, rings, CTAs and warps. Launches use the result, explanations print it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/codec.h"
#include "select/block_shape.h"
#include "select/call_shape.h"

namespace narrowcast::select {

// Bytes of the values in a block of this type under this codec.
inline uint32_t block_bytes(ncast_dtype dtype, ncast_codec codec) {
  return codec::block_type(dtype, codec::effective_codec(dtype, codec)).block_bytes;
}
// The maximum number of CTAs on a GPU with this many SMs. The CTAs of two communicators must be resident together:
// ranks may start the calls of the two in different orders.
constexpr uint32_t ctas_that_fit(uint32_t sms) { return std::clamp<uint32_t>(sms / 2, 1, most_block_ctas); }
// The maximum through host memory. Between hosts half of them encode more than networks carry.
constexpr uint32_t most_ctas_over(Link link, uint32_t shared_bytes, bool is_exact) {
  const uint32_t most = most_ctas_over_host(shared_bytes, is_exact);
  return link == Link::gpu_network ? std::max(most / 2, 1u) : most;
}
// The maximum number of CTAs of a call with this codec. max_ctas: that of the communicator.
inline uint32_t most_ctas(Link link, ncast_codec codec, uint32_t max_ctas, uint32_t shared_bytes) {
  if (!is_over_host(link)) return max_ctas;
  return std::min(max_ctas, most_ctas_over(link, shared_bytes, codec::is_exact(codec)));
}
// Whether a rank keeps what its own values decode to, so that all ranks have the same bits. The warps that send the
// values store them, and there is no local part to copy.
inline bool keeps_decoded(Operation operation, ncast_codec codec) {
  return !codec::is_exact(codec) && (operation == Operation::all_gather || operation == Operation::broadcast);
}
// Whether its blocks are encoded once for all peers. In place, a value would otherwise be replaced by the decoded one
// before a warp has sent it to the last peer.
inline bool sends_together(Operation operation, ncast_codec codec) {
  return keeps_decoded(operation, codec) && operation == Operation::all_gather;
}
// The CTAs that copy a local part of more than most_bytes_of_copiers.
constexpr uint32_t own_copy_ctas(ncast_codec codec) { return codec == NCAST_CODEC_RAW ? 8 : 12; }

// Long all-reduces are launched in thread block clusters. The GPU starts other kernels on the SMs that are in no full
// group for clusters. On an H200 these are eight SMs, whose CTAs take at least 6% longer than the others, and the
// slowest CTA determines the time of a call. Clusters never run there. There is room for 30 clusters of 4 CTAs that
// fill an SM each, which two calls need (see ctas_that_fit()).
inline constexpr uint32_t cluster_ctas = 4;
inline constexpr uint32_t most_clustered_ctas = 60;
// From this size of a piece on. Shorter calls do not gain, and reduce-scatters lose more by the missing CTAs than they
// gain. Measured between two H200.
inline constexpr uint64_t min_clustered_bytes = uint64_t{16} << 20;
// The size of the clusters of a kernel; 1: none.
constexpr uint32_t cluster_size(uint32_t ctas, bool clustered) {
  return clustered && ctas % cluster_ctas == 0 ? cluster_ctas : 1;
}

// The same on all ranks, except `ctas`: ranks with less to do use fewer. The cost model was measured with these shapes.
struct BlockShape {
  const char* plan;   // the builder of plan/builders/ whose messages the ranks send; NULL: no plan describes the call
  ncast_codec codec;  // of the values on the link
  uint32_t block_bytes;   // bytes of the values in a block
  uint32_t warps;         // warps of a CTA
  uint32_t piece_warps;   // warps of a CTA that send a piece, or reduce it
  uint32_t recv_warps;    // warps of a CTA that receive pieces; in a reduction the same ones
  uint32_t memory_bytes;  // shared memory of a CTA
  uint32_t max_ctas;      // CTAs of all kernels of the call, except copy_ctas
  uint32_t copy_ctas;     // CTAs that copy a long local part; 0: the copy engine does
  uint32_t rings;         // of the largest piece
  uint32_t ctas;          // of the rank with the most to do
  bool clustered;         // launched in clusters of cluster_ctas CTAs

  uint32_t most_rings() const { return max_ctas * piece_warps; }  // of a piece
  bool relays() const { return plan != nullptr && std::string_view(plan) == "relay"; }
};
// codec: the chosen one.
BlockShape choose_block_shape(const CallShape& shape, ncast_codec codec);
// The shape of a reduction without a plan. piece_bytes: of the largest piece. clusters: whether it may have them.
// shared_bytes: of a CTA, at most.
BlockShape reduction_shape(ncast_dtype dtype, ncast_codec codec, uint64_t piece_bytes, uint32_t max_ctas, bool clusters,
                           uint32_t shared_bytes);

// What one kernel does on one rank.
struct KernelEnds {
  std::span<const uint32_t> sent = {};  // rings of each piece that is sent; 0: no piece
  uint32_t received = 0;                // rings of all pieces that are received
  uint64_t kept_bytes = 0;              // copied within the rank
  bool one_piece_per_warp = false;      // a sending warp serves one piece only
};
// The CTAs of such a kernel, if it is one of `kernels` concurrent kernels of the call.
uint32_t ctas_of_kernel(const BlockShape& shape, const KernelEnds& ends, uint32_t kernels = 1);

// A vector cut into one piece for each rank that handles one, in whole blocks except for the last. In a broadcast these
// are the ranks that relay a piece; in a reduction, those that reduce one.
class RankPieces {
 public:
  // root: ignored unless the operation has one.
  RankPieces(Operation operation, uint64_t bytes, int ranks, int root, uint32_t block_bytes);
  // The begin of a rank's piece in the vector, and its size: 0 for a rank without a piece.
  uint64_t first(int rank) const { return begin_of(index_of(rank)); }
  uint64_t bytes(int rank) const { return rank == idle_ ? 0 : begin_of(index_of(rank) + 1) - begin_of(index_of(rank)); }

 private:
  uint64_t begin_of(uint64_t index) const { return std::min(bytes_, blocks_ * index / pieces_ * block_bytes_); }
  uint64_t index_of(int rank) const { return static_cast<uint64_t>(idle_ >= 0 && rank > idle_ ? rank - 1 : rank); }

  int idle_;  // the rank without a piece; -1: none
  uint64_t bytes_, blocks_, pieces_, block_bytes_;
};

}  // namespace narrowcast::select
