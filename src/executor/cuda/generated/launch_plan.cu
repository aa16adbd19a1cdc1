// Launches the kernels of loaded plans.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

#include "channel/packet/packet_area.h"
#include "channel/peer/failure.h"
#include "device/early_launch.cuh"
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/generated/generated_plan.h"
#include "executor/cuda/generated/piece_call.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {

// The values that this rank sends to other ranks.
uint64_t GeneratedPlan::bytes_to_peers(uint64_t piece_bytes, uint64_t chunk_bytes) const {
  uint64_t bytes = 0;
  for (const uint32_t chunk : rank_program().sent_chunks)
    bytes += chunk == RankProgram::scratch_chunk ? chunk_bytes : bytes_of_chunk(piece_bytes, chunk_bytes, chunk);
  return bytes;
}

ncast_status GeneratedPlan::check_buffers(const Call& call, uint64_t piece_bytes) const {
  const operation::Description& row = operation::describe(call.operation);
  const bool is_root = call.peer == comm_.rank();
  const auto ranks = static_cast<uint64_t>(comm_.ranks());
  const uint64_t send_bytes = piece_bytes * operation::pieces(row.send, ranks, is_root);
  const uint64_t recv_bytes = piece_bytes * operation::pieces(row.recv, ranks, is_root);
  const auto* const send = static_cast<const char*>(call.send);
  const auto* const recv = static_cast<const char*>(call.recv);
  const bool overlaps = send_bytes != 0 && recv_bytes != 0 && send < recv + recv_bytes && recv < send + send_bytes;
  if (overlaps && program().in_place == plan::InPlace::no)
    return fail(NCAST_INVALID_ARGUMENT, "the plan does not work in place, but the buffers overlap");
  if (!overlaps && program().in_place == plan::InPlace::yes && send_bytes != 0 && recv_bytes != 0)
    return fail(NCAST_INVALID_ARGUMENT, "the plan works in place only, but the buffers are different");
  if (!program().accesses_peer_buffers) return NCAST_OK;
  for (const auto& [name, values, bytes] : {std::tuple{"send", send, send_bytes}, std::tuple{"recv", recv, recv_bytes}})
    if (bytes != 0 && comm_.region_place(values, bytes).region == 0)
      return fail(NCAST_INVALID_ARGUMENT,
                  "the plan lets other ranks access the buffer '%s', which is not in memory that was registered with "
                  "ncast_comm_register",
                  name);
  return NCAST_OK;
}

ncast_status GeneratedPlan::run(const Call& call) {
  const uint64_t value_bytes = ncast_dtype_bytes(call.dtype);
  const uint64_t piece_bytes = call.count * value_bytes;
  const uint64_t chunk_bytes = chunk_bytes_of(compiled_, call.count);
  const uint64_t all_blocks = (chunk_bytes + program().block_bytes - 1) / program().block_bytes;
  if (all_blocks >= UINT32_MAX / 4)
    return fail(NCAST_UNSUPPORTED, "count is %llu, too many for a plan", static_cast<unsigned long long>(call.count));
  const std::lock_guard lock(comm_.launching_);
  const device::DeviceGuard device_guard(device_);
  if (ncast_status status = check_buffers(call, piece_bytes)) return status;
  if (call.count == 0) return NCAST_OK;

  const auto stream = static_cast<cudaStream_t>(call.stream);
  cudaError_t error = comm_.order_.enter(stream);
  if (error == cudaSuccess) error = launch(call);
  if (error == cudaSuccess) error = comm_.leave(stream);
  if (error == cudaSuccess) return NCAST_OK;
  // Other ranks may be waiting for a kernel that was not launched.
  return comm_.set_last_error(channel::cuda_failure("launching a plan", error));
}

cudaError_t GeneratedPlan::launch(const Call& call) {
  const uint64_t value_bytes = ncast_dtype_bytes(call.dtype);
  const uint64_t piece_bytes = call.count * value_bytes;
  const uint64_t chunk_bytes = chunk_bytes_of(compiled_, call.count);
  PacketForm form = PacketForm::short_packets;
  const PlanPacketShape packets = packet_shape(call, chunk_bytes, &form);
  const cudaError_t error = packets.ctas != 0         ? launch_packets(call, packets, form, piece_bytes, chunk_bytes)
                            : compiled_.blocks.pieces ? launch_pieces(call, piece_bytes, chunk_bytes)
                                                      : launch_blocks(call, piece_bytes, chunk_bytes);
  const bool captured = comm_.order_.captures();
  const std::lock_guard counting(comm_.mutex_);
  ncast_operation_counters& counters = comm_.counters_[static_cast<size_t>(call.operation)];
  ++counters.calls;
  if (packets.ctas != 0 && !captured) {
    const uint64_t bytes = bytes_to_peers(piece_bytes, chunk_bytes);
    counters.raw_bytes += bytes;
    counters.wire_bytes += packet_bytes_of(bytes, form);
  }
  return error;
}

cudaError_t Communicator::launch_chosen_plan(const Call& call, cudaStream_t stream) {
  Call own = call;
  own.stream = stream;
  return static_cast<GeneratedPlan*>(call.chosen)->launch(own);
}

// Calls of different plans differ, even if they are calls to the same operation.
uint32_t GeneratedPlan::mark_of(uint32_t mark) const {
  return 1 + static_cast<uint32_t>((mark + compiled_.hash) % ((1u << channel::call_mark_bits) - 1));
}

// Packets are used if the plan asks for them, and where the operation itself would use them. Lines are used for chunks
// as large as the pieces for which it uses them, or if there is no room for the other packets. Decided only from what
// all ranks know.
PlanPacketShape GeneratedPlan::packet_shape(const Call& call, uint64_t chunk_bytes, PacketForm* form) const {
  if (in_phases_.packets == nullptr || comm_.over_host()) return {};
  Decider& decider = *comm_.decider();
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  const CallShape shape = decider.shape_of(call.operation, call.dtype, NCAST_CODEC_RAW, bytes);
  const bool asks = program().asks_for_packets && decider.traits().transport != select::ForcedTransport::blocks;
  if (!asks && !decider.decide(shape).runs_by_packets()) return {};
  const uint32_t max_ctas = comm_.agreement_.max_ctas;
  *form = select::packet_form(std::min(chunk_bytes, bytes), shape.link);
  if (*form == PacketForm::short_packets) {
    const PlanPacketShape packets = packet_shape_of<channel::ShortPacket>(compiled_, chunk_bytes, max_ctas);
    if (packets.ctas != 0 || shape.link != Link::nvlink) return packets;
  }
  *form = PacketForm::lines;
  return packet_shape_of<channel::LinePacket>(compiled_, chunk_bytes, max_ctas);
}

cudaError_t GeneratedPlan::launch_packets(const Call& call, const PlanPacketShape& shape, PacketForm form,
                                          uint64_t piece_bytes, uint64_t chunk_bytes) const {
  PlanPacketCallOf<max_packet_words> params = {};
  params.peers = comm_.peers_;
  params.input = static_cast<const char*>(call.send);
  params.output = static_cast<char*>(call.recv);
  params.chunk_bytes = static_cast<uint32_t>(std::min(chunk_bytes, piece_bytes));
  params.rows = shape.rows;
  params.delay = shape.delay;
  params.buffer_bytes = channel::packet_buffer_bytes(comm_.ranks(), false);
  params.rows_begin = channel::packet_rows_begin(form, comm_.ranks());
  params.mark = mark_of(call_mark(make_tag(call, 0)));
  set_tokens(program(), comm_.rank(), &params);
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(call.send) | reinterpret_cast<uintptr_t>(call.recv);
  params.is_aligned = (addresses | piece_bytes) % 8 == 0 ? 1 : 0;
  const bool is_straight = params.is_aligned != 0 && shape.delay == 0 && straight_.packets != nullptr;
  const PacketKernels& kernels = is_straight ? compiled_.packets.straight : compiled_.packets.in_phases;
  std::ranges::transform(kernels.tables[static_cast<size_t>(comm_.rank())], params.table,
                         [&](PacketWord word) { return value_of(word, piece_bytes, chunk_bytes); });
  const PacketFunctions& functions = is_straight ? straight_ : in_phases_;
  return device::launch(form == PacketForm::lines ? functions.lines : functions.packets, shape.ctas, shape.warps, 0,
                        static_cast<cudaStream_t>(call.stream), true, params);
}

cudaError_t GeneratedPlan::launch_blocks(const Call& call, uint64_t piece_bytes, uint64_t chunk_bytes) {
  PlanCall params = {};
  params.peers = comm_.peers_;
  params.rings = comm_.layout_;
  params.buffers[ChunkRef::input] = const_cast<char*>(static_cast<const char*>(call.send));
  params.buffers[ChunkRef::output] = static_cast<char*>(call.recv);
  // The first copy: kernels find theirs by the number of the call, so that graphs can be replayed.
  params.buffers[ChunkRef::scratch] = shared_ != nullptr ? shared_ + layout_.scratch(0) : own_ + layout_.own_bytes();
  params.scratch_chunk_bytes = uint64_t{blocks_of_launch_} * program().block_bytes;
  params.piece_bytes = piece_bytes;
  params.chunk_bytes = chunk_bytes;
  params.layout = layout_;
  params.own = own_;
  std::ranges::copy(shared_of_ranks_, params.shared);
  if (program().accesses_peer_buffers) {
    params.regions = &comm_.state_->direct_writes.regions[0][0];
    for (const uint32_t buffer : {ChunkRef::input, ChunkRef::output}) {
      const channel::RegionPlace place = comm_.region_place(params.buffers[buffer], 1);
      params.own_regions[buffer] = place.region;
      params.own_offsets[buffer] = place.offset;
    }
  }
  params.byte_counters = &comm_.state_->byte_counters[static_cast<size_t>(call.operation)];
  params.raw_bytes = bytes_to_peers(piece_bytes, chunk_bytes);
  params.announced.words = offsetof(channel::PacketState, call_words);
  set_marks(call, &params.announced);

  const uint64_t all_blocks = (chunk_bytes + program().block_bytes - 1) / program().block_bytes;
  for (uint64_t first = 0; first < all_blocks; first += blocks_of_launch_) {
    const auto blocks = static_cast<uint32_t>(std::min<uint64_t>(all_blocks - first, blocks_of_launch_));
    const PlanShape shape =
        shape_of(program(), compiled_.blocks, blocks, comm_.max_ctas(program().codec), comm_.layout_.rings(),
                 comm_.layout_.slots_of(program().block_bytes), comm_.over_host());
    params.first_block = static_cast<uint32_t>(first);
    params.blocks = blocks;
    params.warps = shape.warps;
    params.slots = shape.slots;
    if (const cudaError_t error =
            device::launch(blocks_, shape.ctas, compiled_.blocks.warps, compiled_.blocks.shared_bytes,
                           static_cast<cudaStream_t>(call.stream), true, params))
      return error;
    params.raw_bytes = 0;
  }
  return cudaSuccess;
}

void GeneratedPlan::set_marks(const Call& call, channel::AnnouncedCall* announced) const {
  comm_.set_call_marks(call, announced);
  for (int peer = 0; peer < comm_.ranks(); ++peer) {
    if (peer == comm_.rank()) continue;
    announced->to[peer] = static_cast<uint16_t>(mark_of(announced->to[peer]));
    announced->from[peer] = static_cast<uint16_t>(mark_of(announced->from[peer]));
  }
}

// As Communicator::launch_moves_of() and launch_reduction_of(), with the plan's chunks for pieces.
cudaError_t GeneratedPlan::launch_pieces(const Call& call, uint64_t piece_bytes, uint64_t chunk_bytes) {
  const PieceProgram& pieces = *compiled_.blocks.pieces;
  const BlockShape shape =
      piece_shape_of(program(), pieces, std::min(chunk_bytes, piece_bytes), comm_.decider()->traits());
  const Rings rings(shape, comm_.layout_, comm_.over_host());
  BlockCall params = comm_.block_call(call.operation, program().codec, 0);
  params.op = call.redop;
  set_marks(call, &params.announced);
  set_pieces(pieces, comm_.rank(), {call.send, call.recv, piece_bytes, chunk_bytes}, rings, &params);
  if (!pieces.reduces && program().codec == NCAST_CODEC_RAW) comm_.plan_direct_writes(&params);
  params.raw_bytes = bytes_to_peers(piece_bytes, chunk_bytes);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto launch = [&] {
    const Grid grid = rings.grid(params);
    return device::launch_clusters(blocks_, grid.ctas, grid.cluster_ctas, grid.warps, grid.shared_bytes, stream, true,
                                   params);
  };

  const LocalCopy own = params.local_copy;
  if (own.bytes <= most_bytes_of_copiers) return launch();
  params.local_copy = {};
  return comm_.copy_concurrently(own, shape.copy_ctas, stream, launch);
}

}  // namespace narrowcast::executor::cuda
