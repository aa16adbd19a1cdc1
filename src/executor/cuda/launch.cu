// Launches the kernels of checked calls.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

#include "channel/packet/packet_area.h"
#include "codec/codec.h"
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/blocks/pieces.h"
#include "executor/cuda/communicator.h"
#include "executor/cuda/scaled_copy.h"
#include "operation/scaled_sum.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {
namespace {

#define RETURN_IF_FAILED(call)                                                      \
  do {                                                                              \
    if (const cudaError_t failed_ = (call); failed_ != cudaSuccess) return failed_; \
  } while (false)

uint64_t bytes_of(const Call& call) { return call.count * ncast_dtype_bytes(call.dtype); }

// Whether both are transfers that differ in their peers and buffers only. Groups often have many of them.
bool are_alike(const Call& one, const Call& other) {
  return is_point_to_point(one.operation) && one.operation == other.operation && one.count == other.count &&
         one.dtype == other.dtype && one.codec == other.codec;
}

// The transfers with one peer in one direction are a chain: they run one after the other.
constexpr size_t most_chains = 2 * channel::max_gpu_ranks;
int chain_of(const Call& transfer) {
  return (transfer.operation == Operation::recv ? channel::max_gpu_ranks : 0) + transfer.peer;
}

Decision decide(Decider& decider, const Call& call) {
  CallShape shape =
      decider.shape_of(call.operation, call.dtype, codec::canonical(call.codec), bytes_of(call), redop_of_tag(call));
  shape.result_codec = call.result_codec;
  return decider.decide(shape);
}

}  // namespace

cudaError_t Communicator::fork(int kernel, cudaStream_t stream) {
  RETURN_IF_FAILED(cudaEventRecord(fork_event_, stream));
  return cudaStreamWaitEvent(side_stream(kernel).stream, fork_event_);
}

cudaError_t Communicator::join(int kernel, cudaStream_t stream) {
  const SideStream& side = side_stream(kernel);
  RETURN_IF_FAILED(cudaEventRecord(side.join_event, side.stream));
  return cudaStreamWaitEvent(stream, side.join_event);
}

BlockCall Communicator::block_call(Operation operation, ncast_codec codec, int kernel) const {
  BlockCall call = {};
  call.peers = peers_;
  call.layout = layout_;
  call.codec = call.result_codec = codec::explicit_parameters(codec);  // kernels do not know the default parameters
  call.encoded = ~0u;
  call.block_counters = &state_->block_counters[kernel];
  call.byte_counters = &state_->byte_counters[static_cast<size_t>(operation)];
  call.announced.words = offsetof(channel::PacketState, call_words);
  return call;
}

// In all_to_all_v the mark includes the count between the two ranks.
void Communicator::set_call_marks(const Call& call, channel::AnnouncedCall* announced) const {
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

// Which pieces of an all_to_all_v this rank encodes: those that it would encode in an all_to_all.
uint32_t Communicator::encoded_pieces(const Call& call, const BlockCall& moves) const {
  if (call.operation != Operation::all_to_all_v || codec::is_forced(call.codec)) return ~0u;
  uint32_t encoded = 0;
  for (int peer = 0; peer < ranks(); ++peer) {
    const CallShape alike = decider()->shape_of(Operation::all_to_all, call.dtype, call.codec, moves.send[peer].bytes);
    if (decider()->decide(alike).codec != NCAST_CODEC_RAW) encoded |= 1u << peer;
  }
  return encoded;
}

void Communicator::plan_direct_writes(BlockCall* call) const {
  if (registered_ == 0) return;
  call->direct_writes = &state_->direct_writes;
  for (int peer = 0; peer < ranks(); ++peer) {
    const Piece &send = call->send[peer], &recv = call->recv[peer];
    if (send.bytes >= min_direct_bytes) call->inviting_peers |= 1u << peer;
    if (recv.bytes < min_direct_bytes) continue;
    call->invited_peers |= 1u << peer;
    call->places[peer] = region_place(recv.values, recv.bytes);
  }
}

ncast_status Communicator::launch(const std::vector<Call>& calls) {
  const std::lock_guard lock(launching_);
  const device::DeviceGuard device_guard(device_);
  std::vector<DecidedCall> decided;
  decided.reserve(calls.size());
  std::vector<const DecidedCall*> transfers, collectives;
  for (const Call& call : calls) {
    const bool is_repeated = !decided.empty() && are_alike(decided.back().call, call);
    decided.push_back({call, is_repeated ? decided.back().decision : decide(*decider(), call)});
    (is_point_to_point(call.operation) ? transfers : collectives).push_back(&decided.back());
  }
  // As in NCCL, the group waits for earlier work on all streams of its calls, and later work on these streams waits for
  // the group.
  const auto stream = static_cast<cudaStream_t>(calls[0].stream);
  std::vector<cudaStream_t> others;
  for (const Call& call : calls) {
    const auto other = static_cast<cudaStream_t>(call.stream);
    if (other != stream && std::ranges::find(others, other) == others.end()) others.push_back(other);
  }

  const auto run = [&]() -> cudaError_t {
    RETURN_IF_FAILED(order_.enter(stream));
    for (cudaStream_t other : others) {
      RETURN_IF_FAILED(cudaEventRecord(fork_event_, other));
      RETURN_IF_FAILED(cudaStreamWaitEvent(stream, fork_event_));
    }
    // Collectives first, as in NCCL, because another rank may make these calls without a group.
    for (const DecidedCall* one : collectives) RETURN_IF_FAILED(launch_collective(*one, stream));
    if (!transfers.empty()) RETURN_IF_FAILED(launch_point_to_point(transfers, stream));
    if (!others.empty()) RETURN_IF_FAILED(cudaEventRecord(fork_event_, stream));
    for (cudaStream_t other : others) RETURN_IF_FAILED(cudaStreamWaitEvent(other, fork_event_));
    return leave(stream);
  };
  const cudaError_t error = run();
  {
    const std::lock_guard counting(mutex_);
    for (const DecidedCall& one : decided) count(one);
  }
  if (error == cudaSuccess) return NCAST_OK;
  // Other ranks may be waiting for a kernel that was not launched.
  const ncast_status status = channel::cuda_failure(function_name(calls[0].operation), error);
  const std::string message = ncast_last_error();
  set_error(status, message.c_str());
  return fail(status, "%s", message.c_str());
}

// Counts the bytes of calls by packets. Calls by blocks are counted by their kernels, but that would make the shortest
// calls by packets 1% slower.
void Communicator::count(const DecidedCall& decided) {
  const auto& [call, decision] = decided;
  if (call.chosen != nullptr) return;  // launch_chosen_plan() has counted it
  ncast_operation_counters& counters = counters_[static_cast<size_t>(call.operation)];
  ++counters.calls;
  const bool captured = order_.captures();
  if (captured || ranks() == 1 || !decision.runs_by_packets()) return;
  const PacketShape& shape = *decision.packets;
  const uint64_t bytes = sent_by_packets(call.operation, shape, bytes_of(call), rank(), ranks(), call.peer);
  counters.raw_bytes += bytes;
  counters.wire_bytes += packet_bytes_of(bytes, shape.form);
}

cudaError_t Communicator::copy_concurrently(const LocalCopy& copy, uint32_t ctas, cudaStream_t stream,
                                            const std::function<cudaError_t()>& launch_kernels) {
  const auto side = static_cast<int>(side_streams_.size());
  RETURN_IF_FAILED(fork(side, stream));
  RETURN_IF_FAILED(launch_kernels());
  RETURN_IF_FAILED(launch_local_copy(copy, ctas, side_stream(side).stream));
  return join(side, stream);
}

cudaError_t Communicator::launch_point_to_point(const Transfers& transfers, cudaStream_t stream) {
  Transfers own_sends, own_recvs, others;  // to and from this rank itself, and with other ranks
  others.reserve(transfers.size());
  uint32_t chains = 0;  // bit mask
  for (const DecidedCall* one : transfers) {
    const Call& call = one->call;
    if (call.count == 0) continue;
    if (call.peer == rank()) {
      (call.operation == Operation::send ? own_sends : own_recvs).push_back(one);
      continue;
    }
    others.push_back(one);
    chains |= 1u << chain_of(call);
  }
  const bool has_long_chains = static_cast<size_t>(std::popcount(chains)) != others.size();
  // The last copy within this rank. A kernel makes one at most, so the driver makes those before it.
  LocalCopy copy = {};
  for (size_t i = 0; i < own_sends.size(); ++i) {
    if (copy.bytes != 0) RETURN_IF_FAILED(launch_local_copy(copy, 0, stream));
    const Call &send = own_sends[i]->call, &recv = own_recvs[i]->call;
    copy = {static_cast<const char*>(send.send), static_cast<char*>(recv.recv), bytes_of(send)};
  }
  if (others.empty()) return copy.bytes == 0 ? cudaSuccess : launch_local_copy(copy, 0, stream);
  if (!has_long_chains && copy.bytes <= most_bytes_of_copiers) return launch_concurrently(others, copy, stream);
  const auto launch_others = [&] {
    return has_long_chains ? launch_chains(transfers, chains, stream) : launch_concurrently(others, {}, stream);
  };
  if (copy.bytes == 0) return launch_others();
  const BlockShape& shape = *others[0]->decision.blocks;
  const uint32_t ctas = shape.max_ctas == most_block_ctas ? own_copy_ctas(shape.codec) : 0;
  return copy_concurrently(copy, ctas, stream, launch_others);
}

// One kernel for each transfer, because the peer may make its calls for different chains in any order.
cudaError_t Communicator::launch_chains(const Transfers& transfers, uint32_t chains, cudaStream_t stream) {
  const int count = std::popcount(chains);
  for (int kernel = 1; kernel < count; ++kernel) RETURN_IF_FAILED(fork(kernel, stream));
  // Streams may share a hardware queue, where a kernel that waits for its predecessor in a chain blocks the kernels
  // queued after it. So launch the i-th transfers of all chains before the next ones, as NCCL does. Empty transfers
  // have their steps, too, because the peer may make the calls of one step before those of the next.
  struct Step {
    uint32_t number;
    int chain;
    const DecidedCall* transfer;
  };
  std::vector<Step> steps;
  steps.reserve(transfers.size());
  std::array<uint32_t, most_chains> lengths = {};
  for (const DecidedCall* one : transfers) {
    if (one->call.peer == rank()) continue;
    const int chain = chain_of(one->call);
    const uint32_t number = lengths[static_cast<size_t>(chain)]++;
    if (one->call.count != 0) steps.push_back({number, chain, one});
  }
  std::ranges::stable_sort(steps, {}, [](const Step& step) { return std::pair(step.number, step.chain); });
  struct Last {
    const DecidedCall* transfer = nullptr;
    TransferKernel kernel;
  };
  std::vector<Last> last(static_cast<size_t>(count));
  for (const auto& [number, chain, transfer] : steps) {
    const int kernel = std::popcount(chains & ((1u << chain) - 1));
    Last& of_chain = last[static_cast<size_t>(kernel)];
    if (of_chain.transfer != nullptr && are_alike(of_chain.transfer->call, transfer->call))
      set_values(transfer->call, &of_chain.kernel);
    else
      of_chain.kernel = transfer_kernel({transfer}, {}, kernel, count);
    of_chain.transfer = transfer;
    RETURN_IF_FAILED(launch_moves(of_chain.kernel.call, of_chain.kernel.dtype, of_chain.kernel.grid,
                                  kernel == 0 ? stream : side_stream(kernel).stream));
  }
  for (int kernel = 1; kernel < count; ++kernel) RETURN_IF_FAILED(join(kernel, stream));
  return cudaSuccess;
}

// For transfers of which no two have the same peer and direction. Launches a kernel for each coding. They run
// concurrently, because ranks could launch them in different orders and deadlock if they ran one after the other. The
// first one also makes the copy.
cudaError_t Communicator::launch_concurrently(const Transfers& transfers, const LocalCopy& copy, cudaStream_t stream) {
  std::vector<Coding> codings;
  for (const DecidedCall* one : transfers)
    if (std::ranges::find(codings, coding_of(*one)) == codings.end()) codings.push_back(coding_of(*one));
  const auto count = static_cast<int>(codings.size());
  for (int kernel = 1; kernel < count; ++kernel) RETURN_IF_FAILED(fork(kernel, stream));
  for (int number = 0; number < count; ++number) {
    const Coding coding = codings[static_cast<size_t>(number)];
    Transfers same_coding;
    std::ranges::copy_if(transfers, std::back_inserter(same_coding),
                         [&](const DecidedCall* one) { return coding_of(*one) == coding; });
    const TransferKernel kernel = transfer_kernel(same_coding, number == 0 ? copy : LocalCopy{}, number, count);
    RETURN_IF_FAILED(
        launch_moves(kernel.call, kernel.dtype, kernel.grid, number == 0 ? stream : side_stream(number).stream));
  }
  for (int kernel = 1; kernel < count; ++kernel) RETURN_IF_FAILED(join(kernel, stream));
  return cudaSuccess;
}

Communicator::TransferKernel Communicator::transfer_kernel(const Transfers& transfers, const LocalCopy& copy,
                                                           int kernel, int kernels) const {
  const Coding coding = coding_of(*transfers[0]);
  const Rings rings(*transfers[0]->decision.blocks, layout_, over_host());  // transfers with one coding have one shape
  TransferKernel result{block_call(Operation::send, coding.codec, kernel), coding.dtype, {}};
  BlockCall& call = result.call;
  call.is_point_to_point = true;
  call.local_copy = copy;
  for (const DecidedCall* decided : transfers) {
    const Call& one = decided->call;
    const bool sends = one.operation == Operation::send;
    (sends ? call.send : call.recv)[one.peer] = rings.piece(sends ? one.send : one.recv, bytes_of(one));
    (sends ? call.announced.to : call.announced.from)[one.peer] = static_cast<uint16_t>(call_mark(make_tag(one, 0)));
  }
  if (coding.codec == NCAST_CODEC_RAW) plan_direct_writes(&call);
  call.raw_bytes = sent_bytes(call);
  call.assigns_blocks = assigns_blocks(call, rings.block_bytes());
  result.grid = rings.grid(call, static_cast<uint32_t>(kernels));
  return result;
}

void Communicator::set_values(const Call& transfer, TransferKernel* kernel) const {
  const bool sends = transfer.operation == Operation::send;
  BlockCall& call = kernel->call;
  (sends ? call.send : call.recv)[transfer.peer].values =
      const_cast<char*>(static_cast<const char*>(sends ? transfer.send : transfer.recv));
  if (call.codec == NCAST_CODEC_RAW) plan_direct_writes(&call);
}

Communicator::Coding Communicator::coding_of(const DecidedCall& decided) {
  const ncast_codec codec = decided.decision.blocks->codec;
  return {codec == NCAST_CODEC_RAW ? NCAST_INT8 : decided.call.dtype, codec};
}

cudaError_t Communicator::launch_collective(const DecidedCall& decided, cudaStream_t stream) {
  const auto& [call, decision] = decided;
  if (call.operation != Operation::all_to_all_v && call.count == 0) return cudaSuccess;
  if (call.chosen != nullptr) return launch_chosen_plan(call, stream);
  if (ranks() == 1 && call.factor)
    return launch_scaled_copy(call.send, call.recv, call.count, call.dtype, *call.factor, stream);
  if (!decision.blocks) {  // by packets, or a copy if there is only one rank
    return launch_packets(peers_, 0,
                          {call.operation, call.send, call.recv, call.count, call.dtype, call.redop, call.peer,
                           call_mark(make_tag(call, 0))},
                          decision.packets.value_or(PacketShape{}), stream);
  }
  return reduces(call.operation) ? launch_reduction_of(decided, stream) : launch_moves_of(decided, stream);
}

cudaError_t Communicator::launch_moves_of(const DecidedCall& decided, cudaStream_t stream) {
  const Call& call = decided.call;
  const ncast_codec codec = decided.decision.blocks->codec;
  const Rings rings(*decided.decision.blocks, layout_, over_host());
  BlockCall moves = block_call(call.operation, codec, 0);
  cut_moves(call, rings, &moves);
  moves.encoded = encoded_pieces(call, moves);
  set_call_marks(call, &moves.announced);
  if (codec == NCAST_CODEC_RAW && !moves.in_order) plan_direct_writes(&moves);
  moves.raw_bytes = sent_bytes(moves);
  moves.assigns_blocks = assigns_blocks(moves, rings.block_bytes());

  const LocalCopy own = moves.local_copy;
  if (own.bytes <= most_bytes_of_copiers) return launch_moves(moves, call.dtype, rings.grid(moves), stream);
  moves.local_copy = {};
  return copy_concurrently(own, decided.decision.blocks->copy_ctas, stream,
                           [&] { return launch_moves(moves, call.dtype, rings.grid(moves), stream); });
}

cudaError_t Communicator::launch_reduction_of(const DecidedCall& decided, cudaStream_t stream) {
  const Call& call = decided.call;
  const Rings rings(*decided.decision.blocks, layout_, over_host());
  BlockCall reduction = block_call(call.operation, decided.decision.blocks->codec, 0);
  if (decided.decision.result_codec) {
    reduction.codec = codec::explicit_parameters(decided.decision.codec);
    reduction.result_codec = codec::explicit_parameters(*decided.decision.result_codec);
  }
  cut_reduction(call, rings, &reduction);
  if (call.factor) {
    reduction.op = operation::scaled_sum;
    reduction.factor = *call.factor;
  }
  set_call_marks(call, &reduction.announced);
  reduction.raw_bytes = sent_bytes(reduction);
  return launch_reduction(reduction, call.dtype, rings.grid(reduction), stream);
}

}  // namespace narrowcast::executor::cuda
