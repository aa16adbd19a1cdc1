// From checked calls to kernels.
#include <cuda_runtime.h>

#include <algorithm>

#include "collective/cuda/choice.h"
#include "collective/cuda/communicator.h"
#include "status/error.h"

namespace narrowcast::collective::cuda {
namespace {

#define RETURN_IF_FAILED(call)                                                      \
  do {                                                                              \
    if (const cudaError_t failed_ = (call); failed_ != cudaSuccess) return failed_; \
  } while (false)

char* at(const void* buffer, uint64_t bytes) {
  return buffer == nullptr ? nullptr : const_cast<char*>(static_cast<const char*>(buffer)) + bytes;
}

uint64_t bytes_of(const Call& call) { return call.count * ncast_dtype_bytes(call.dtype); }

// The lanes of pieces, and the CTAs that a kernel with these pieces needs.
class Lanes {
 public:
  Lanes(uint32_t block_bytes, uint32_t warps, uint32_t max_ctas)
      : block_bytes_(block_bytes), warps_(warps), max_ctas_(max_ctas) {}
  Piece piece(char* values, uint64_t bytes) {
    const uint32_t lanes = lanes_of(bytes, block_bytes_, warps_, max_ctas_);
    ctas_ = std::max(ctas_, ctas_of(lanes, max_ctas_));
    return {values, bytes, lanes};
  }
  uint32_t ctas(int ranks) const { return std::max(ctas_, least_ctas(warps_, ranks)); }

 private:
  uint32_t block_bytes_, warps_, max_ctas_, ctas_ = 1;
};

}  // namespace

cudaError_t Communicator::fork(int side, cudaStream_t stream) {
  RETURN_IF_FAILED(cudaEventRecord(forked_, stream));
  return cudaStreamWaitEvent(sides_[static_cast<size_t>(side)].stream, forked_);
}

cudaError_t Communicator::join(int side, cudaStream_t stream) {
  const SideStream& beside = sides_[static_cast<size_t>(side)];
  RETURN_IF_FAILED(cudaEventRecord(beside.joined, beside.stream));
  return cudaStreamWaitEvent(stream, beside.joined);
}

const Choice& Communicator::choice_of(const Call& call) {
  const bool over_host = place_ == channel::PeerMemory::Place::host;
  return choices_.of({call.operation, call.dtype, call.codec, bytes_of(call), ranks(), over_host, agreement_.max_ctas},
                     policy());
}

BlockCall Communicator::block_call(int kernel) const {
  BlockCall call = {};
  call.peers = peers_;
  call.layout = layout_;
  call.wire_bytes = &state_->wire_bytes;
  call.claims = &state_->claims[kernel];
  return call;
}

void Communicator::write_straight(BlockCall* call) const {
  if (registered_ == 0) return;
  call->straight = &state_->straight;
  for (int peer = 0; peer < ranks(); ++peer) {
    const Piece &send = call->send[peer], &recv = call->recv[peer];
    if (send.bytes >= least_straight_bytes) call->awaits |= 1u << peer;
    if (recv.bytes < least_straight_bytes) continue;
    call->invites |= 1u << peer;
    call->places[peer] = place_of(recv.values, recv.bytes);
  }
}

ncast_status Communicator::launch(const std::vector<const Call*>& calls) {
  const std::lock_guard lock(launching_);
  const OnDevice on_device(device_);
  std::vector<const Call*> transfers, collectives;
  for (const Call* call : calls) (is_point_to_point(call->operation) ? transfers : collectives).push_back(call);

  const auto run = [&]() -> cudaError_t {
    if (!transfers.empty()) {
      // They are one operation: it comes after what is on any of their streams, and before what will be.
      const auto stream = static_cast<cudaStream_t>(transfers[0]->stream);
      RETURN_IF_FAILED(enter(stream));
      std::vector<cudaStream_t> others;
      for (const Call* call : transfers) {
        const auto other = static_cast<cudaStream_t>(call->stream);
        if (other != stream && std::ranges::find(others, other) == others.end()) others.push_back(other);
      }
      for (cudaStream_t other : others) {
        RETURN_IF_FAILED(cudaEventRecord(forked_, other));
        RETURN_IF_FAILED(cudaStreamWaitEvent(stream, forked_));
      }
      RETURN_IF_FAILED(launch_point_to_point(transfers, stream));
      if (!others.empty()) RETURN_IF_FAILED(cudaEventRecord(forked_, stream));
      for (cudaStream_t other : others) RETURN_IF_FAILED(cudaStreamWaitEvent(other, forked_));
      RETURN_IF_FAILED(leave(stream));
    }
    for (const Call* call : collectives) {
      const auto stream = static_cast<cudaStream_t>(call->stream);
      RETURN_IF_FAILED(enter(stream));
      RETURN_IF_FAILED(launch_collective(*call, stream));
      RETURN_IF_FAILED(leave(stream));
    }
    return cudaSuccess;
  };
  const cudaError_t error = run();
  {
    const std::lock_guard counting(mutex_);
    calls_ += calls.size();
    for (const Call* call : calls) {
      raw_bytes_ += sent_bytes(*call);
      // Kernels count what they put into slots. Of a packet's 16 bytes 12 are values.
      if (choice_of(*call).packets && ranks() > 1) packet_bytes_ += sent_bytes(*call) / 3 * 4;
    }
  }
  if (error == cudaSuccess) return NCAST_OK;
  // Other ranks may wait for what was not launched.
  const ncast_status status = channel::cuda_failure(function_name(calls[0]->operation), error);
  const std::string sentence = ncast_last_error();
  set_error(status, sentence.c_str());
  return fail(status, "%s", sentence.c_str());
}

// The k-th send to a peer meets its k-th receive from this rank: these make the k-th round.
cudaError_t Communicator::launch_point_to_point(const std::vector<const Call*>& calls, cudaStream_t stream) {
  std::vector<std::vector<const Call*>> sends(static_cast<size_t>(ranks())), recvs(static_cast<size_t>(ranks()));
  for (const Call* call : calls)
    (call->operation == Operation::send ? sends : recvs)[static_cast<size_t>(call->peer)].push_back(call);
  const auto own = static_cast<size_t>(rank());
  for (size_t i = 0; i < sends[own].size(); ++i) {
    if (bytes_of(*sends[own][i]) == 0) continue;
    RETURN_IF_FAILED(cudaMemcpyAsync(recvs[own][i]->recv, sends[own][i]->send, bytes_of(*sends[own][i]),
                                     cudaMemcpyDeviceToDevice, stream));
  }
  for (size_t round = 0;; ++round) {
    std::vector<const Call*> of_sends, of_recvs;
    for (size_t peer = 0; peer < sends.size(); ++peer) {
      if (peer == own) continue;
      if (round < sends[peer].size() && sends[peer][round]->count != 0) of_sends.push_back(sends[peer][round]);
      if (round < recvs[peer].size() && recvs[peer][round]->count != 0) of_recvs.push_back(recvs[peer][round]);
    }
    const bool more = std::ranges::any_of(sends, [&](const auto& list) { return round + 1 < list.size(); }) ||
                      std::ranges::any_of(recvs, [&](const auto& list) { return round + 1 < list.size(); });
    if (!of_sends.empty() || !of_recvs.empty()) RETURN_IF_FAILED(launch_round(of_sends, of_recvs, stream));
    if (!more) return cudaSuccess;
  }
}

// One kernel for each way of coding, side by side: the order of kernels could differ between ranks, and lock them.
cudaError_t Communicator::launch_round(const std::vector<const Call*>& sends, const std::vector<const Call*>& recvs,
                                       cudaStream_t stream) {
  struct Coding {
    ncast_dtype dtype;  // INT8 for all that is raw
    ncast_codec codec;
    bool operator==(const Coding&) const = default;
  };
  const auto coding_of = [&](const Call& call) {
    const ncast_codec codec = choice_of(call).codec;
    return Coding{codec == NCAST_CODEC_RAW ? NCAST_INT8 : call.dtype, codec};
  };
  std::vector<Coding> codings;
  for (const auto* list : {&sends, &recvs})
    for (const Call* call : *list)
      if (std::ranges::find(codings, coding_of(*call)) == codings.end()) codings.push_back(coding_of(*call));

  const auto kernels = static_cast<int>(codings.size());
  for (int kernel = 1; kernel < kernels; ++kernel) RETURN_IF_FAILED(fork(kernel, stream));
  for (int kernel = 0; kernel < kernels; ++kernel) {
    const Coding coding = codings[static_cast<size_t>(kernel)];
    const uint32_t block = block_bytes(coding.dtype, coding.codec);
    Lanes lanes(block, piece_warps(Operation::send, coding.dtype, coding.codec, ranks()), agreement_.max_ctas);
    BlockCall call = block_call(kernel);
    for (const Call* send : sends)
      if (coding_of(*send) == coding) call.send[send->peer] = lanes.piece(at(send->send, 0), bytes_of(*send));
    for (const Call* recv : recvs)
      if (coding_of(*recv) == coding) call.recv[recv->peer] = lanes.piece(at(recv->recv, 0), bytes_of(*recv));
    if (coding.codec == NCAST_CODEC_RAW) write_straight(&call);
    const uint32_t ctas = std::min(lanes.ctas(ranks()), most_block_ctas * 2 / static_cast<uint32_t>(kernels));
    RETURN_IF_FAILED(launch_moves(call, coding.dtype, coding.codec, ctas,
                                  kernel == 0 ? stream : sides_[static_cast<size_t>(kernel)].stream));
  }
  for (int kernel = 1; kernel < kernels; ++kernel) RETURN_IF_FAILED(join(kernel, stream));
  return cudaSuccess;
}

cudaError_t Communicator::launch_collective(const Call& call, cudaStream_t stream) {
  const Choice choice = choice_of(call);
  if (call.operation != Operation::all_to_all_v && call.count == 0) return cudaSuccess;
  if (const auto operation = packet_operation(call.operation); operation && choice.packets) {
    return launch_packets(peers_, 0, {*operation, call.send, call.recv, call.count, call.dtype, call.redop, call.peer},
                          agreement_.max_ctas, stream);
  }
  return reduces(call.operation) ? launch_reduction_of(call, choice.codec, stream)
                                 : launch_moves_of(call, choice.codec, stream);
}

cudaError_t Communicator::launch_moves_of(const Call& call, ncast_codec codec, cudaStream_t stream) {
  const uint64_t bytes = bytes_of(call);
  const uint32_t block = block_bytes(call.dtype, codec);
  Lanes lanes(block, piece_warps(call.operation, call.dtype, codec, ranks()), agreement_.max_ctas);
  BlockCall moves = block_call(0);
  const void* own_from = nullptr;
  void* own_to = nullptr;
  uint64_t own_bytes = bytes;
  for (int peer = 0; peer < ranks(); ++peer) {
    const auto index = static_cast<uint64_t>(peer);
    const size_t value_bytes = ncast_dtype_bytes(call.dtype);
    Piece send = {}, recv = {};
    const bool is_root = rank() == call.peer, from_root = peer == call.peer;
    switch (call.operation) {
      case Operation::all_gather:
        send = lanes.piece(at(call.send, 0), bytes);
        recv = lanes.piece(at(call.recv, index * bytes), bytes);
        break;
      case Operation::all_to_all:
        send = lanes.piece(at(call.send, index * bytes), bytes);
        recv = lanes.piece(at(call.recv, index * bytes), bytes);
        break;
      case Operation::all_to_all_v: {
        const PeerCounts::Range& out = call.peer_counts->send[index];
        const PeerCounts::Range& in = call.peer_counts->recv[index];
        send = lanes.piece(at(call.send, out.first * value_bytes), out.elems * value_bytes);
        recv = lanes.piece(at(call.recv, in.first * value_bytes), in.elems * value_bytes);
        break;
      }
      case Operation::broadcast:
        if (is_root) send = lanes.piece(at(call.send, 0), bytes);
        if (from_root) recv = lanes.piece(at(call.recv, 0), bytes);
        break;
      case Operation::scatter:
        if (is_root) send = lanes.piece(at(call.send, index * bytes), bytes);
        if (from_root) recv = lanes.piece(at(call.recv, 0), bytes);
        break;
      default:  // gather
        if (from_root) send = lanes.piece(at(call.send, 0), bytes);
        if (is_root) recv = lanes.piece(at(call.recv, index * bytes), bytes);
    }
    if (peer == rank()) {
      own_from = send.values;
      own_to = recv.values;
      own_bytes = std::min(send.bytes, recv.bytes);
    } else {
      moves.send[peer] = send;
      moves.recv[peer] = recv;
    }
  }
  moves.send_same = call.operation == Operation::all_gather || call.operation == Operation::broadcast;

  if (codec == NCAST_CODEC_RAW) write_straight(&moves);

  // What stays on the rank is copied beside the kernel.
  const bool copies = own_bytes != 0 && own_from != own_to && own_to != nullptr && own_from != nullptr;
  if (copies) RETURN_IF_FAILED(fork(0, stream));
  RETURN_IF_FAILED(launch_moves(moves, call.dtype, codec, lanes.ctas(ranks()), stream));
  if (!copies) return cudaSuccess;
  // After the kernel, which could not begin while a copy is on every SM.
  RETURN_IF_FAILED(cudaMemcpyAsync(own_to, own_from, own_bytes, cudaMemcpyDeviceToDevice, sides_[0].stream));
  return join(0, stream);
}

cudaError_t Communicator::launch_reduction_of(const Call& call, ncast_codec codec, cudaStream_t stream) {
  const uint64_t bytes = bytes_of(call);
  const uint32_t block = block_bytes(call.dtype, codec);
  BlockCall reduction = block_call(0);
  reduction.warps = reduce_warps_of(call.operation, call.dtype, codec);
  Lanes lanes(block, reduction.warps.reducers, agreement_.max_ctas);
  reduction.op = call.redop;
  reduction.first_forward_lane = agreement_.max_ctas * reduction.warps.reducers;
  const BlockPieces pieces(bytes, ranks(), block);
  const bool scatters = call.operation == Operation::reduce_scatter;
  const bool is_root = rank() == call.peer;
  for (int peer = 0; peer < ranks(); ++peer) {
    const uint64_t first = scatters ? static_cast<uint64_t>(peer) * bytes : pieces.first(peer);
    const uint64_t piece_bytes = scatters ? bytes : pieces.bytes(peer);
    const Piece values = lanes.piece(at(call.send, first), piece_bytes);
    const bool receives = call.operation == Operation::all_reduce || (call.operation == Operation::reduce && is_root);
    if (peer == rank()) {
      reduction.own = values;
      reduction.reduced = values;
      reduction.reduced.values = scatters ? at(call.recv, 0) : receives ? at(call.recv, first) : nullptr;
    } else {
      reduction.send[peer] = values;
      if (receives) reduction.recv[peer] = lanes.piece(at(call.recv, first), piece_bytes);
      if (call.operation == Operation::all_reduce || (call.operation == Operation::reduce && peer == call.peer))
        reduction.forward |= 1u << peer;
    }
  }
  return launch_reduction(reduction, call.dtype, codec, lanes.ctas(ranks()), stream);
}

// Bytes of values that this rank sends to others.
uint64_t Communicator::sent_bytes(const Call& call) const {
  const uint64_t bytes = bytes_of(call), others = static_cast<uint64_t>(ranks() - 1);
  const bool is_root = rank() == call.peer;
  switch (call.operation) {
    case Operation::send: return is_root ? 0 : bytes;  // the peer is oneself
    case Operation::recv: return 0;
    case Operation::broadcast:
    case Operation::scatter: return is_root ? others * bytes : 0;
    case Operation::gather:
    case Operation::reduce: return is_root ? 0 : bytes;
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::reduce_scatter: return others * bytes;
    case Operation::all_reduce: return 2 * others * bytes / static_cast<uint64_t>(ranks());
    case Operation::all_to_all_v: break;
  }
  uint64_t elems = 0;
  for (int peer = 0; peer < ranks(); ++peer)
    if (peer != rank()) elems += call.peer_counts->send[static_cast<size_t>(peer)].elems;
  return elems * ncast_dtype_bytes(call.dtype);
}

}  // namespace narrowcast::collective::cuda
