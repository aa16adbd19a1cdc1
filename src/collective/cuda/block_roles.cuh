// What the warps of a block kernel do: send blocks or receive them (and reduce_role.cuh: reduce them). Each warp has
// buffers of its own in shared memory and waits for nobody else in its CTA, but for the signal warp when its queue is full.
#pragma once

#include "channel/cuda/memory_channel.cuh"
#include "channel/cuda/straight_write.cuh"
#include "codec/window/kernel.cuh"
#include "collective/cuda/block_call.h"
#include "device/copy.cuh"
#include "format/frame.h"

namespace narrowcast::collective::cuda {

using channel::End;
using channel::EndMask;
using channel::SignalQueue;
using channel::SlotFlag;

// How a block of values becomes a payload. Both leave a block that does not shrink as it is, and so can say by the length
// alone which of the two it is.
struct RawCoding {
  static constexpr bool codes = false;
  static constexpr uint32_t block_bytes = 4096;
  struct Scratch {};
  __device__ static uint32_t encode(const char*, char*, Scratch&, int) { return block_bytes; }
  __device__ static bool decode(const char*, uint32_t, char*, Scratch&, int) { return false; }
};
// Not inlined: roles share the code, and the sums of a reduction cost registers only where they are.
template <ncast_dtype Dtype>
struct WindowCoding {
  using Block = codec::window::Block<format::window::value_type(Dtype)>;
  static constexpr bool codes = true;
  static constexpr uint32_t block_bytes = Block::values_bytes;
  using Scratch = typename Block::Scratch;
  __device__ __noinline__ static uint32_t encode(const char* values, char* payload, Scratch& scratch, int lane) {
    return Block::template encode<false>(values, payload, scratch, lane);
  }
  __device__ __noinline__ static bool decode(const char* payload, uint32_t bytes, char* values, Scratch& scratch,
                                             int lane) {
    return Block::template decode<false>(payload, bytes, values, scratch, lane);
  }
};

__device__ inline void swap(char*& a, char*& b) {
  char* const was_a = a;
  a = b;
  b = was_a;
}

// The buffers do not come first: of a pointer that begins as this struct's address and changes places with another one,
// ptxas 13.0 has been seen to take the address of the scratch after the change.
template <typename Coding, int Buffers>
struct RoleMemory {
  uint64_t barrier;
  typename Coding::Scratch scratch;
  alignas(128) char buffers[Buffers][Coding::block_bytes];
};

__device__ inline bool is_bulk(const void* global, uint32_t bytes) {
  return (reinterpret_cast<uintptr_t>(global) | bytes) % format::alignment == 0;
}

// Brings values to shared memory, one block at a time.
class ValueLoader {
 public:
  __device__ ValueLoader(uint64_t* word, int lane) : barrier_(word, lane), lane_(lane) {}

  // What is loaded is zero up to a multiple of 16 bytes.
  __device__ void start(char* to, const char* from, uint32_t bytes) {
    bulk_ = is_bulk(from, bytes);
    if (bulk_) return barrier_.load(to, from, bytes, lane_);
    __syncwarp();
    const uint32_t padded = static_cast<uint32_t>(format::aligned(bytes));
    if (bytes + lane_ < padded) to[bytes + lane_] = 0;
    device::copy_by_warp(to, from, bytes, lane_);
  }
  __device__ void wait() {
    if (bulk_) return barrier_.wait();
    __syncwarp();
  }

 private:
  device::LoadBarrier barrier_;
  int lane_;
  bool bulk_ = false;
};

// The same for a payload, from a slot whose flag the warp has seen.
__device__ inline void start_loading_payload(char* to, const char* from, uint32_t bytes, int lane) {
  __syncwarp();
  for (uint32_t at = lane * 16; at < bytes; at += 32 * 16) device::start_copy_of_16_bytes(to + at, from + at);
}
__device__ inline void wait_for_payload() {
  device::wait_for_copies_of_16_bytes();
  __syncwarp();
}

// From shared memory, which the warp has written, to global memory; wait_for_store_sources() before it is written again.
__device__ inline void store_values(char* to, const char* from, uint32_t bytes, int lane) {
  if (is_bulk(to, bytes)) return device::bulk_store(to, from, bytes, lane);
  __syncwarp();
  device::copy_by_warp(to, from, bytes, lane);
}

// One block of a piece; 0 bytes: the piece has none of that number.
struct BlockOf {
  char* values;
  uint32_t bytes;
};
template <uint32_t block_bytes>
__device__ BlockOf block_of(const Piece& piece, uint32_t block) {
  const uint64_t begin = uint64_t{block} * block_bytes;
  if (begin >= piece.bytes) return {nullptr, 0};
  const uint64_t left = piece.bytes - begin;
  return {piece.values + begin, left < block_bytes ? static_cast<uint32_t>(left) : block_bytes};
}

// The pieces that this warp serves, the `number`th of `warps`: the ranks that have one share the warps, and the lanes of a
// piece share those of its rank. Nobody who waits for one rank holds up another.
struct Share {
  int peer;        // -1: nothing
  uint32_t first;  // lanes first, first + stride, ...; one a thread
  uint32_t stride;

  __device__ Share(const Piece* pieces, int rank, int ranks, uint32_t number, uint32_t warps, int thread) : peer(-1) {
    const uint32_t active =
        __ballot_sync(device::all_lanes, thread < ranks && thread != rank && pieces[thread].bytes != 0);
    const uint32_t count = __popc(active);
    if (count == 0) return;
    first = number / count;
    stride = (warps - number % count + count - 1) / count;
    // Counted from this rank on, so that no rank is everybody's first.
    uint32_t skip = number % count;
    for (int step = 1; step < ranks; ++step) {
      const int candidate = rank + step < ranks ? rank + step : rank + step - ranks;
      if ((active >> candidate & 1) != 0 && skip-- == 0) peer = candidate;
    }
  }
  // How many lanes, one a thread.
  __device__ int ends(const Piece* pieces) const {
    if (peer < 0 || first >= pieces[peer].lanes) return 0;
    return static_cast<int>((pieces[peer].lanes - first + stride - 1) / stride);
  }
};

// What the warps of a CTA share: the queues of those that send, and how many of them have not ended.
template <uint32_t most_senders>
struct alignas(128) Signals {
  SignalQueue queues[most_senders];
  uint32_t open;

  // All threads of the CTA, before anything else.
  __device__ void open_all(uint32_t senders) {
    for (uint32_t i = threadIdx.x; i < senders; i += blockDim.x) queues[i].pushed = queues[i].raised = 0;
    if (threadIdx.x == 0) open = senders;
    __syncthreads();
  }
  // Each sending warp when it ends.
  __device__ void close_one(int thread) {
    __syncwarp();
    if (thread == 0) {
      __threadfence_block();
      atomicSub(&open, 1u);
    }
  }
};

__device__ __noinline__ inline void report_corrupt(const channel::Peers& peers, int peer, int lane) {
  if (lane == 0) channel::give_up(peers, peer, channel::payload_corrupt);
}

// The warp is the `number`th of `warps` senders. `in_order`: block b goes to lane b % lanes, as reducers need it; else each
// lane takes what is next, so that slow ones take less.
template <typename Coding, int Buffers>
__device__ void send_blocks(const BlockCall& call, RoleMemory<Coding, Buffers>& memory, SignalQueue& signals,
                            uint32_t number, uint32_t warps, bool in_order, int thread) {
  const int rank = call.peers.rank, ranks = call.peers.ranks;
  const Share share(call.send, rank, ranks, number, warps, thread);
  if (share.peer < 0) return;
  const Piece& piece = call.send[share.peer];
  // Either each end is a lane of one peer, or, where all are sent the same, each is a peer: the lane's number is the warp's.
  const bool sends = thread < ranks && thread != rank && call.send[thread].bytes != 0;
  const EndMask everybody = call.send_same ? __ballot_sync(device::all_lanes, sends) : 0;
  const int ends = call.send_same ? (number < piece.lanes ? 1 : 0) : share.ends(call.send);
  if (ends == 0) return;
  const uint32_t first = call.send_same ? number : share.first;
  End end{-1, 0};
  if (call.send_same) {
    if (sends) end = {thread, number};
  } else if (thread < ends) {
    end = {share.peer, share.first + thread * share.stride};
  }
  const bool takes_next = !in_order && (call.send_same || piece.lanes <= share.stride);
  uint32_t* const taken = &call.claims->taken[call.send_same ? rank : share.peer];

  ValueLoader loader(&memory.barrier, thread);
  channel::SlotSender sender(call.peers, call.layout, end, Coding::block_bytes, signals, thread);
  channel::StraightEnds straight;
  char *here = memory.buffers[0], *other = memory.buffers[1];  // the block's values, and its payload
  unsigned long long wire_bytes = 0;
  uint32_t block = first, turn = 0;
  int at = 0;  // the end that it goes to
  BlockOf values = block_of<Coding::block_bytes>(piece, block);
  loader.start(here, values.values, values.bytes);
  if (!Coding::codes && !straight.begin(call.peers, call.layout, call.straight, end, call.awaits)) return;
  while (values.bytes != 0) {
    uint32_t next = 0;
    if (takes_next && thread == 0) next = piece.lanes + atomicAdd(taken, 1u);
    loader.wait();
    const uint32_t raw_bytes = values.bytes;
    uint32_t bytes = static_cast<uint32_t>(format::aligned(raw_bytes));
    if (raw_bytes == Coding::block_bytes) bytes = Coding::encode(here, other, memory.scratch, thread);
    if (bytes == Coding::block_bytes || raw_bytes != Coding::block_bytes) {
      swap(here, other);  // raw: it stays where it is, and what encode() wrote is loaded over
      if (Coding::codes) device::order_stores_before_bulk_copies();
    }

    const EndMask to = call.send_same ? everybody : 1u << at;
    const uint32_t this_block = block;
    if (takes_next) {
      block = __shfl_sync(device::all_lanes, next, 0);
    } else {
      if (++at == ends) {
        at = 0;
        ++turn;
      }
      block = turn * piece.lanes + first + at * share.stride;
    }
    values = block_of<Coding::block_bytes>(piece, block);
    const bool last =
        takes_next ? values.bytes == 0 : block_of<Coding::block_bytes>(piece, this_block + piece.lanes).bytes == 0;
    if (values.bytes != 0) loader.start(here, values.values, values.bytes);
    const EndMask invited = Coding::codes ? 0 : to & straight.mask(), slots = to & ~invited;
    if (!sender.reserve(last ? to : slots)) return;
    if (slots != 0) sender.put(slots, other, bytes, this_block, last);
    if (invited != 0) {
      straight.write(invited, uint64_t{this_block} * Coding::block_bytes, other, raw_bytes, thread);
      if (last) sender.raise(invited, SlotFlag::written, this_block, last);
    }
    wire_bytes += bytes * __popc(to);
  }
  sender.close();
  if (thread == 0 && wire_bytes != 0) atomicAdd(call.wire_bytes, wire_bytes);
}

// Each of the `warps` senders of all CTAs when it ends: the last one leaves the claims as they were, and has answered all
// invitations.
__device__ inline void end_claims(const BlockCall& call, uint32_t warps, int thread) {
  if (thread != 0) return;
  __threadfence();
  if (atomicAdd(&call.claims->ended, 1u) + 1 != warps) return;
  *call.claims = {};
  for (int peer = 0; peer < call.peers.ranks; ++peer)
    if ((call.awaits >> peer & 1) != 0) ++call.straight->received[peer];
}

// One warp of the kernel.
__device__ inline void invite_senders(const BlockCall& call, int thread) {
  if ((call.invites >> thread & 1) != 0)
    channel::invite(call.peers, call.layout, *call.straight, thread, call.places[thread]);
}

// A payload on its way from a slot to shared memory.
struct Arriving {
  uint32_t bytes = 0;  // 0: none
  int end;
  bool last;      // of its end
  BlockOf block;  // where its values go; none if they are there already
};

// Starts to bring the next payload of `end`, whose block belongs to `piece`, to `here`. Without `wait`, only if it is there
// already; with it, bytes of 0 mean that the communicator is stopped.
template <typename Coding>
__device__ Arriving start_payload(const BlockCall& call, const Piece& piece, channel::SlotReceiver& receiver, int end,
                                  int source, char* here, bool wait, int thread) {
  const channel::SlotReceiver::Payload payload = wait ? receiver.wait(end) : receiver.poll(end);
  const uint32_t bytes = payload.flag.bytes();
  Arriving arriving{bytes, end, payload.flag.last(), block_of<Coding::block_bytes>(piece, payload.flag.block())};
  if (bytes == 0) return arriving;
  if (!Coding::codes && bytes == SlotFlag::written && call.places[source].region != 0) {
    arriving.block = {nullptr, 0};
    return arriving;
  }
  const uint32_t raw_bytes = arriving.block.bytes;
  if (raw_bytes == 0 || bytes > Coding::block_bytes ||
      (raw_bytes != Coding::block_bytes && bytes != format::aligned(raw_bytes))) {
    report_corrupt(call.peers, source, thread);
    arriving.bytes = 0;
    return arriving;
  }
  start_loading_payload(here, payload.data, bytes, thread);
  return arriving;
}

// Is the payload the values themselves?
template <typename Coding>
__device__ bool is_raw(const Arriving& payload) {
  return payload.bytes == Coding::block_bytes || payload.block.bytes != Coding::block_bytes;
}

// The warp is the `number`th of `warps` receivers; lanes are counted from first_lane.
template <typename Coding, int Buffers>
__device__ void receive_blocks(const BlockCall& call, RoleMemory<Coding, Buffers>& memory, uint32_t number,
                               uint32_t warps, uint32_t first_lane, int thread) {
  const Share share(call.recv, call.peers.rank, call.peers.ranks, number, warps, thread);
  const int ends = share.ends(call.recv);
  if (ends == 0) return;
  const End end = thread < ends ? End{share.peer, first_lane + share.first + thread * share.stride} : End{-1, 0};
  channel::SlotReceiver receiver(call.peers, call.layout, end, Coding::block_bytes, thread);
  // A payload, the one after it, and the values of the first.
  char *here = memory.buffers[0], *next = memory.buffers[1], *values = memory.buffers[2];
  EndMask open = ends == 32 ? ~0u : (1u << ends) - 1;  // ends that get more
  int at = 0;
  const auto start = [&](char* to, bool wait) {
    return start_payload<Coding>(call, call.recv[share.peer], receiver, at, share.peer, to, wait, thread);
  };
  Arriving arriving;
  while (open != 0) {
    if (arriving.bytes == 0) arriving = start(here, true);
    if (arriving.bytes == 0) return;
    const Arriving payload = arriving;
    wait_for_payload();
    receiver.release(payload.end);
    device::wait_for_store_sources(thread);  // of the last block: its buffer may be either
    if (payload.last) open &= ~(1u << payload.end);
    arriving.bytes = 0;
    if (open != 0) {
      do at = at + 1 < ends ? at + 1 : 0;
      while ((open >> at & 1) == 0);
      arriving = start(next, false);
    }
    if (payload.block.values == nullptr) {
      // The sender has put the lane's values where they end up.
    } else if (is_raw<Coding>(payload)) {
      store_values(payload.block.values, here, payload.block.bytes, thread);
      swap(here, values);
    } else if (Coding::decode(here, payload.bytes, values, memory.scratch, thread)) {
      store_values(payload.block.values, values, payload.block.bytes, thread);
    } else {
      return report_corrupt(call.peers, share.peer, thread);
    }
    swap(here, next);
  }
  device::wait_for_stores(thread);
  receiver.close();
}

}  // namespace narrowcast::collective::cuda
