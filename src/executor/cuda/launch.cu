// From checked calls to kernels.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "channel/packet/packet_area.h"
#include "codec/codec.h"
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/blocks/pieces.h"
#include "executor/cuda/communicator.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {
namespace {

#define RETURN_IF_FAILED(call)                                                      \
  do {                                                                              \
    if (const cudaError_t failed_ = (call); failed_ != cudaSuccess) return failed_; \
  } while (false)

uint64_t bytes_of(const Call& call) { return call.count * ncast_dtype_bytes(call.dtype); }

Decision decide(Decider& decider, const Call& call) {
  return decider.decide(decider.shape_of(call.operation, call.dtype, call.codec, bytes_of(call)));
}

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

BlockCall Communicator::block_call(Operation operation, ncast_codec codec, int kernel) const {
  BlockCall call = {};
  call.peers = peers_;
  call.layout = layout_;
  call.codec = codec::explicit_parameters(codec);  // what kernels take
  call.claims = &state_->claims[kernel];
  call.sent = &state_->sent[static_cast<size_t>(operation)];
  call.announced.words = offsetof(channel::PacketState, call_words);
  return call;
}

// all_to_all_v: every two ranks have counts of their own.
void Communicator::mark_collective(const Call& call, channel::AnnouncedCall* announced) const {
  CallTag tag = make_tag(call, 0);
  const auto mark = [&](const std::vector<PeerCounts::Range>& ranges, int peer) {
    if (call.operation == Operation::all_to_all_v) tag.count = ranges[static_cast<size_t>(peer)].elems;
    return static_cast<uint16_t>(call_mark(tag));
  };
  static const PeerCounts none;
  const PeerCounts& counts = call.peer_counts != nullptr ? *call.peer_counts : none;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank()) continue;
    announced->to[peer] = mark(counts.send, peer);
    announced->from[peer] = mark(counts.recv, peer);
  }
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
  std::vector<DecidedCall> decided;
  decided.reserve(calls.size());
  std::vector<const DecidedCall*> transfers, collectives;
  for (const Call* call : calls) {
    decided.push_back({*call, decide(*decider(), *call)});
    (is_point_to_point(call->operation) ? transfers : collectives).push_back(&decided.back());
  }
  // As with NCCL they come after what is on any of their streams, and before what will be.
  const auto stream = static_cast<cudaStream_t>(calls[0]->stream);
  std::vector<cudaStream_t> others;
  for (const Call* call : calls) {
    const auto other = static_cast<cudaStream_t>(call->stream);
    if (other != stream && std::ranges::find(others, other) == others.end()) others.push_back(other);
  }

  const auto run = [&]() -> cudaError_t {
    RETURN_IF_FAILED(enter(stream));
    for (cudaStream_t other : others) {
      RETURN_IF_FAILED(cudaEventRecord(forked_, other));
      RETURN_IF_FAILED(cudaStreamWaitEvent(stream, forked_));
    }
    // Collectives first, as with NCCL: another rank may have them one after the other.
    for (const DecidedCall* one : collectives) RETURN_IF_FAILED(launch_collective(*one, stream));
    if (!transfers.empty()) RETURN_IF_FAILED(launch_point_to_point(transfers, stream));
    if (!others.empty()) RETURN_IF_FAILED(cudaEventRecord(forked_, stream));
    for (cudaStream_t other : others) RETURN_IF_FAILED(cudaStreamWaitEvent(other, forked_));
    return leave(stream);
  };
  const cudaError_t error = run();
  {
    const std::lock_guard counting(mutex_);
    for (const DecidedCall& one : decided) count(one);
  }
  if (error == cudaSuccess) return NCAST_OK;
  // Other ranks may wait for what was not launched.
  const ncast_status status = channel::cuda_failure(function_name(calls[0]->operation), error);
  const std::string sentence = ncast_last_error();
  set_error(status, sentence.c_str());
  return fail(status, "%s", sentence.c_str());
}

// Kernels count what they send by blocks. With packets that is too slow: a hundredth of the shortest calls' time.
void Communicator::count(const DecidedCall& decided) {
  const auto& [call, decision] = decided;
  ncast_operation_counters& counters = counters_[static_cast<size_t>(call.operation)];
  ++counters.calls;
  const bool captured = entered_ == &captured_;
  if (captured || ranks() == 1 || !decision.runs_by_packets()) return;
  const PacketShape& shape = *decision.packets;
  const uint64_t bytes = sent_by_packets(call.operation, shape, bytes_of(call), rank(), ranks(), call.peer);
  counters.raw_bytes += bytes;
  counters.wire_bytes += packet_bytes_of(bytes, shape.lines);
}

cudaError_t Communicator::launch_point_to_point(const Transfers& transfers, cudaStream_t stream) {
  std::vector<Transfers> sends(static_cast<size_t>(ranks())), recvs(static_cast<size_t>(ranks()));
  for (const DecidedCall* one : transfers)
    (one->call.operation == Operation::send ? sends : recvs)[static_cast<size_t>(one->call.peer)].push_back(one);
  const auto own = static_cast<size_t>(rank());
  for (size_t i = 0; i < sends[own].size(); ++i) {
    const Call& send = sends[own][i]->call;
    if (bytes_of(send) == 0) continue;
    RETURN_IF_FAILED(
        cudaMemcpyAsync(recvs[own][i]->call.recv, send.send, bytes_of(send), cudaMemcpyDeviceToDevice, stream));
  }
  // With each of the others, one way.
  std::vector<Transfers> chains;
  for (auto* const all : {&sends, &recvs}) {
    for (size_t peer = 0; peer < all->size(); ++peer) {
      Transfers& chain = (*all)[peer];
      std::erase_if(chain, [&](const DecidedCall* one) { return peer == own || one->call.count == 0; });
      if (!chain.empty()) chains.push_back(std::move(chain));
    }
  }
  if (chains.empty()) return cudaSuccess;
  if (std::ranges::all_of(chains, [](const Transfers& chain) { return chain.size() == 1; })) {
    Transfers together;
    for (const Transfers& chain : chains) together.push_back(chain[0]);
    return launch_at_once(together, stream);
  }
  // Each by itself: a peer may have its part of one before that of another, however many there are.
  const auto count = static_cast<int>(chains.size());
  for (int chain = 1; chain < count; ++chain) RETURN_IF_FAILED(fork(chain, stream));
  // By turns: streams may share one of the GPU's queues, where a kernel that waits for the one before it in its chain
  // holds up what comes behind it.
  const size_t turns = std::ranges::max(chains, {}, &Transfers::size).size();
  for (size_t turn = 0; turn < turns; ++turn) {
    for (int chain = 0; chain < count; ++chain) {
      const Transfers& its = chains[static_cast<size_t>(chain)];
      if (turn >= its.size()) continue;
      RETURN_IF_FAILED(launch_transfers({its[turn]}, coding_of(*its[turn]), chain, count,
                                        chain == 0 ? stream : side_of(chain).stream));
    }
  }
  for (int chain = 1; chain < count; ++chain) RETURN_IF_FAILED(join(chain, stream));
  return cudaSuccess;
}

// At most one with each of the others, one way. One kernel for each way of coding, side by side: the order of kernels
// could differ between ranks, and lock them.
cudaError_t Communicator::launch_at_once(const Transfers& transfers, cudaStream_t stream) {
  std::vector<Coding> codings;
  for (const DecidedCall* one : transfers)
    if (std::ranges::find(codings, coding_of(*one)) == codings.end()) codings.push_back(coding_of(*one));
  const auto count = static_cast<int>(codings.size());
  for (int kernel = 1; kernel < count; ++kernel) RETURN_IF_FAILED(fork(kernel, stream));
  for (int kernel = 0; kernel < count; ++kernel) {
    const Coding coding = codings[static_cast<size_t>(kernel)];
    Transfers coded_so;
    std::ranges::copy_if(transfers, std::back_inserter(coded_so),
                         [&](const DecidedCall* one) { return coding_of(*one) == coding; });
    RETURN_IF_FAILED(launch_transfers(coded_so, coding, kernel, count, kernel == 0 ? stream : side_of(kernel).stream));
  }
  for (int kernel = 1; kernel < count; ++kernel) RETURN_IF_FAILED(join(kernel, stream));
  return cudaSuccess;
}

// By the `kernel`th of `kernels` that run side by side.
cudaError_t Communicator::launch_transfers(const Transfers& transfers, Coding coding, int kernel, int kernels,
                                           cudaStream_t stream) {
  const Rings rings(*transfers[0]->decision.blocks, layout_);  // transfers with one coding have one shape
  BlockCall call = block_call(Operation::send, coding.codec, kernel);
  call.of_messages = true;
  for (const DecidedCall* decided : transfers) {
    const Call& one = decided->call;
    const bool sends = one.operation == Operation::send;
    (sends ? call.send : call.recv)[one.peer] = rings.piece(sends ? one.send : one.recv, bytes_of(one));
    (sends ? call.announced.to : call.announced.from)[one.peer] = static_cast<uint16_t>(call_mark(make_tag(one, 0)));
  }
  if (coding.codec == NCAST_CODEC_RAW) write_straight(&call);
  call.raw_bytes = sent_bytes(call);
  return launch_moves(call, coding.dtype, rings.ctas(call, static_cast<uint32_t>(kernels)), stream);
}

Communicator::Coding Communicator::coding_of(const DecidedCall& decided) {
  const ncast_codec codec = decided.decision.codec;
  return {codec == NCAST_CODEC_RAW ? NCAST_INT8 : decided.call.dtype, codec};
}

cudaError_t Communicator::launch_collective(const DecidedCall& decided, cudaStream_t stream) {
  const auto& [call, decision] = decided;
  if (call.operation != Operation::all_to_all_v && call.count == 0) return cudaSuccess;
  if (!decision.blocks) {  // packets, or the copy of a rank that is alone
    return launch_packets(peers_, 0,
                          {call.operation, call.send, call.recv, call.count, call.dtype, call.redop, call.peer,
                           call_mark(make_tag(call, 0))},
                          decision.packets.value_or(PacketShape{}), stream);
  }
  return reduces(call.operation) ? launch_reduction_of(decided, stream) : launch_moves_of(decided, stream);
}

cudaError_t Communicator::launch_moves_of(const DecidedCall& decided, cudaStream_t stream) {
  const Call& call = decided.call;
  const ncast_codec codec = decided.decision.codec;
  const Rings rings(*decided.decision.blocks, layout_);
  BlockCall moves = block_call(call.operation, codec, 0);
  cut_moves(call, rings, &moves);
  mark_collective(call, &moves.announced);
  if (codec == NCAST_CODEC_RAW && !moves.in_order) write_straight(&moves);
  moves.raw_bytes = sent_bytes(moves);

  const OwnCopy own = moves.own_copy;
  const bool beside = own.bytes > most_bytes_of_copiers;
  if (beside) {
    moves.own_copy = {};
    RETURN_IF_FAILED(fork(1, stream));
  }
  RETURN_IF_FAILED(launch_moves(moves, call.dtype, rings.ctas(moves), stream));
  if (!beside) return cudaSuccess;
  RETURN_IF_FAILED(launch_own_copy(own, decided.decision.blocks->copy_ctas, side_of(1).stream));
  return join(1, stream);
}

cudaError_t Communicator::launch_reduction_of(const DecidedCall& decided, cudaStream_t stream) {
  const Call& call = decided.call;
  const Rings rings(*decided.decision.blocks, layout_);
  BlockCall reduction = block_call(call.operation, decided.decision.codec, 0);
  cut_reduction(call, rings, &reduction);
  mark_collective(call, &reduction.announced);
  reduction.raw_bytes = sent_bytes(reduction);
  return launch_reduction(reduction, call.dtype, rings.ctas(reduction), stream);
}

}  // namespace narrowcast::executor::cuda
