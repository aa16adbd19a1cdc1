#include "channel/cuda/bounded_wait.cuh"
#include "collective/cuda/kernels.h"
#include "collective/cuda/meeting.h"

namespace narrowcast::collective::cuda {
namespace {

constexpr uint64_t longest_ns = 100'000'000;

// One warp, a thread for each peer.
__global__ void meet(const __grid_constant__ channel::Peers peers,
                     const __grid_constant__ channel::ChannelLayout layout, Meetings* meetings) {
  const int peer = static_cast<int>(threadIdx.x);
  const bool is_peer = peer < peers.ranks && peer != peers.rank;
  const uint64_t number = meetings->count + 1;
  const auto arrivals = [&](int in_scratch_of, int of) {
    return reinterpret_cast<uint64_t*>(peers.scratch[in_scratch_of] + layout.arrivals(of, peers.ranks));
  };
  const auto came_to = [&] { return is_peer ? device::load_relaxed(arrivals(peers.rank, peer)) : number; };
  if (is_peer) device::store_relaxed(arrivals(peer, peers.rank), number);
  // The last call has ended, in which all took part. Who did not come to its meeting may not come to this one.
  const bool is_apart = __any_sync(device::all_lanes, meetings->is_apart != 0 || came_to() + 1 < number);
  const uint64_t begin = device::nanoseconds();
  bool waits = !is_apart;
  while (waits)
    waits = __any_sync(device::all_lanes, came_to() < number) &&
            __any_sync(device::all_lanes, device::nanoseconds() - begin < longest_ns);
  if (threadIdx.x == 0) *meetings = {number, is_apart ? 1u : 0u};
}

}  // namespace

cudaError_t load_meeting() { return load_kernel(meet); }

cudaError_t launch_meeting(const channel::Peers& peers, const channel::ChannelLayout& layout, Meetings* meetings,
                           cudaStream_t stream) {
  meet<<<1, 32, 0, stream>>>(peers, layout, meetings);
  return cudaGetLastError();
}

}  // namespace narrowcast::collective::cuda
