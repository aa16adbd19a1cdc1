// From checked calls to kernels.
#include <cuda_runtime.h>

#include <algorithm>

#include "collective/cuda/block_pieces.h"
#include "collective/cuda/choice.h"
#include "collective/cuda/communicator.h"
#include "status/error.h"

namespace narrowcast::collective::cuda {
namespace {

#define RETURN_IF_FAILED(call)                                                      \
  do {                                                                              \
    if (const cudaError_t failed_ = (call); failed_ != cudaSuccess) return failed_; \
  } while (false)

uint64_t bytes_of(const Call& call) { return call.count * ncast_dtype_bytes(call.dtype); }

}  // namespace

cudaError_t Communicator::fork(int kernel, cudaStream_t stream) {
  RETURN_IF_FAILED(cudaEventRecord(forked_, stream));
  return cudaStreamWaitEvent(side_of(kernel).stream, forked_);
}

cudaError_t Communicator::join(int kernel, cudaStream_t stream) {
  const SideStream& beside = side_of(kernel);
  RETURN_IF_FAILED(cudaEventRecord(beside.joined, beside.stream));
  return cudaStreamWaitEvent(stream, beside.joined);
}

const Choice& Communicator::choice_of(const Call& call) {
  const bool over_host = place_ == channel::PeerMemory::Place::host;
  return choices_.of(
      {call.operation, call.dtype, call.codec, bytes_of(call), ranks(), over_host, nvlink_, agreement_.max_ctas},
      policy());
}

// Of a call that goes by packets.
PacketShape Communicator::packet_shape_of(const Call& call) const {
  return choose_packet_shape(*packet_operation(call.operation), bytes_of(call), ranks(), nvlink_, agreement_.max_ctas);
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
    // These first, as with NCCL: another rank may have them one after the other.
    for (const Call* call : collectives) {
      const auto stream = static_cast<cudaStream_t>(call->stream);
      RETURN_IF_FAILED(enter(stream));
      RETURN_IF_FAILED(launch_collective(*call, stream));
      RETURN_IF_FAILED(leave(stream));
    }
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
    return cudaSuccess;
  };
  sent_bytes_ = 0;
  const cudaError_t error = run();
  {
    const std::lock_guard counting(mutex_);
    calls_ += calls.size();
    raw_bytes_ += sent_bytes_;  // kernels count what they put into slots
    for (const Call* call : calls) {
      if (!choice_of(*call).packets || ranks() == 1) continue;
      const uint64_t sent = sent_by_packets(*call);
      raw_bytes_ += sent;
      packet_bytes_ += packet_bytes_of(sent, packet_shape_of(*call).lines);
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
    const Lanes lanes(*(sends.empty() ? recvs : sends)[0], coding.dtype, coding.codec, layout_, agreement_.max_ctas);
    BlockCall call = block_call(kernel);
    call.of_messages = true;
    for (const Call* send : sends)
      if (coding_of(*send) == coding) call.send[send->peer] = lanes.piece(send->send, bytes_of(*send));
    for (const Call* recv : recvs)
      if (coding_of(*recv) == coding) call.recv[recv->peer] = lanes.piece(recv->recv, bytes_of(*recv));
    if (coding.codec == NCAST_CODEC_RAW) write_straight(&call);
    sent_bytes_ += sent_bytes(call);
    RETURN_IF_FAILED(launch_moves(call, coding.dtype, coding.codec, lanes.ctas(call, static_cast<uint32_t>(kernels)),
                                  kernel == 0 ? stream : side_of(kernel).stream));
  }
  for (int kernel = 1; kernel < kernels; ++kernel) RETURN_IF_FAILED(join(kernel, stream));
  return cudaSuccess;
}

cudaError_t Communicator::launch_collective(const Call& call, cudaStream_t stream) {
  const Choice choice = choice_of(call);
  if (call.operation != Operation::all_to_all_v && call.count == 0) return cudaSuccess;
  if (const auto operation = packet_operation(call.operation); operation && choice.packets) {
    return launch_packets(peers_, 0, {*operation, call.send, call.recv, call.count, call.dtype, call.redop, call.peer},
                          packet_shape_of(call), stream);
  }
  return reduces(call.operation) ? launch_reduction_of(call, choice.codec, stream)
                                 : launch_moves_of(call, choice.codec, stream);
}

cudaError_t Communicator::launch_moves_of(const Call& call, ncast_codec codec, cudaStream_t stream) {
  const Lanes lanes(call, call.dtype, codec, layout_, agreement_.max_ctas);
  BlockCall moves = block_call(0);
  cut_moves(call, codec, lanes, &moves);
  if (codec == NCAST_CODEC_RAW && !moves.in_order) write_straight(&moves);
  sent_bytes_ += sent_bytes(moves);

  const OwnCopy own = moves.own_copy;
  const bool beside = own.bytes > most_bytes_of_copiers;
  if (beside) {
    moves.own_copy = {};
    RETURN_IF_FAILED(fork(1, stream));
  }
  RETURN_IF_FAILED(launch_moves(moves, call.dtype, codec, lanes.ctas(moves), stream));
  if (!beside) return cudaSuccess;
  const uint32_t own_ctas = agreement_.max_ctas == most_block_ctas ? own_copy_ctas(codec) : 0;
  RETURN_IF_FAILED(launch_own_copy(own, own_ctas, side_of(1).stream));
  return join(1, stream);
}

cudaError_t Communicator::launch_reduction_of(const Call& call, ncast_codec codec, cudaStream_t stream) {
  const Lanes lanes(call, call.dtype, codec, layout_, agreement_.max_ctas);
  BlockCall reduction = block_call(0);
  cut_reduction(call, codec, lanes, &reduction);
  sent_bytes_ += sent_bytes(reduction);
  return launch_reduction(reduction, call.dtype, codec, lanes.ctas(reduction), stream);
}

// Bytes of values that this rank sends to others by packets.
uint64_t Communicator::sent_by_packets(const Call& call) const {
  const uint64_t bytes = bytes_of(call), others = static_cast<uint64_t>(ranks() - 1);
  const bool is_root = rank() == call.peer;
  switch (call.operation) {
    case Operation::broadcast:
    case Operation::scatter: return is_root ? others * bytes : 0;
    case Operation::gather:
    case Operation::reduce: return is_root ? 0 : bytes;
    case Operation::all_reduce: return 2 * others * bytes / static_cast<uint64_t>(ranks());
    default: return others * bytes;
  }
}

}  // namespace narrowcast::collective::cuda
