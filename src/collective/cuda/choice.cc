#include "collective/cuda/choice.h"

#include <algorithm>
#include <cstdlib>

#include "format/window.h"

namespace narrowcast::collective::cuda {
namespace {

constexpr uint64_t never = ~uint64_t{0};

// From how many bytes a call is coded when the codec is left to the library: where coding costs less time than the bytes
// that it saves. Measured between two H200 with weights; a piece's bytes.
constexpr uint64_t least_coded_bytes(Operation operation) {
  switch (operation) {
    case Operation::send:
    case Operation::recv:
    case Operation::scatter:
    case Operation::gather: return uint64_t{4} << 20;
    case Operation::broadcast:
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::all_to_all_v:
    case Operation::reduce_scatter: return uint64_t{8} << 20;
    case Operation::reduce:
    case Operation::all_reduce: return never;
  }
  return never;
}
// The same where payloads go through host memory: its link is slower than any coder.
constexpr uint64_t least_coded_bytes_over_host = uint64_t{256} << 10;

// Below how many bytes packets are faster than blocks.
constexpr uint64_t end_of_packets(Operation operation) {
  switch (operation) {
    case Operation::send:
    case Operation::recv:
    case Operation::all_to_all_v: return 0;  // packets need every rank to take part alike, in a size that all know
    case Operation::all_reduce: return (uint64_t{1} << 20) + 1;
    default: return (uint64_t{256} << 10) + 1;
  }
}

// The message is in the reach of packets: nothing, or why not.
const char* why_no_packets(const CallShape& shape) {
  const auto operation = packet_operation(shape.operation);
  if (!operation) return "packets need every rank to take part alike";
  if (shape.over_host) return "packets are stores that are seen whole, which the host link does not promise";
  if (shape.bytes >= end_of_packets(shape.operation) || shape.bytes > most_packet_bytes(*operation, shape.ranks))
    return "at this size the time is bytes, of which blocks move more in a second";
  return nullptr;
}

}  // namespace

Choice choose(const CallShape& shape) {
  const char* const alone = "a rank alone copies its own values";
  if (shape.ranks == 1 && packet_operation(shape.operation)) return {true, NCAST_CODEC_RAW, alone, alone};
  const char* const no_packets = why_no_packets(shape);
  const bool packets = no_packets == nullptr;
  const char* const path = packets ? "at this size the time is latency, and packets need no fence" : no_packets;
  const bool can_code = format::window::value_type(shape.dtype).value_bytes != 0;
  if (shape.codec == NCAST_CODEC_RAW) return {packets, NCAST_CODEC_RAW, "raw was asked for", path};
  if (!can_code) return {packets, NCAST_CODEC_RAW, "the codec does not shrink this type", path};
  if (shape.codec == NCAST_CODEC_WINDOW)
    return {false, NCAST_CODEC_WINDOW, "window was asked for", packets ? "packets carry values as they are" : path};
  if (packets) return {true, NCAST_CODEC_RAW, "at this size the time is latency, which coding adds to", path};
  if (shape.bytes < (shape.over_host ? least_coded_bytes_over_host : least_coded_bytes(shape.operation)))
    return {false, NCAST_CODEC_RAW, "at this size coding takes longer than the bytes that it saves", path};
  return {false, NCAST_CODEC_WINDOW, "the link is the limit at this size, and coding shortens what crosses it", path};
}

std::optional<PacketOperation> packet_operation(Operation operation) {
  switch (operation) {
    case Operation::all_reduce: return PacketOperation::all_reduce;
    case Operation::all_gather: return PacketOperation::all_gather;
    case Operation::reduce_scatter: return PacketOperation::reduce_scatter;
    case Operation::all_to_all: return PacketOperation::all_to_all;
    case Operation::broadcast: return PacketOperation::broadcast;
    case Operation::reduce: return PacketOperation::reduce;
    case Operation::gather: return PacketOperation::gather;
    case Operation::scatter: return PacketOperation::scatter;
    default: return std::nullopt;
  }
}

ReduceWarps reduce_warps_of(Operation operation, ncast_dtype dtype, ncast_codec codec) {
  return reduce_warps(operation != Operation::reduce_scatter, codec, block_bytes(dtype, codec),
                      ncast_dtype_bytes(dtype));
}

uint32_t piece_warps(Operation operation, ncast_dtype dtype, ncast_codec codec, int ranks) {
  if (reduces(operation)) return reduce_warps_of(operation, dtype, codec).reducers;
  const uint32_t senders = move_warps(block_bytes(dtype, codec)).senders;
  const bool to_each =
      operation == Operation::all_to_all || operation == Operation::all_to_all_v || operation == Operation::scatter;
  return to_each && ranks > 2 ? std::max(senders / static_cast<uint32_t>(ranks - 1), 1u) : senders;
}

BlockShape choose_block_shape(const CallShape& shape, ncast_codec codec, uint32_t max_ctas) {
  BlockShape blocks{};
  blocks.block_bytes = block_bytes(shape.dtype, codec);
  blocks.warps = reduces(shape.operation) ? reduce_warps_of(shape.operation, shape.dtype, codec).all()
                                          : move_warps(blocks.block_bytes).all();
  uint64_t piece_bytes = shape.bytes;
  if (shape.operation == Operation::all_reduce || shape.operation == Operation::reduce) {
    const BlockPieces pieces(shape.bytes, shape.ranks, blocks.block_bytes);
    piece_bytes = 0;
    for (int rank = 0; rank < shape.ranks; ++rank) piece_bytes = std::max(piece_bytes, pieces.bytes(rank));
  }
  const uint32_t warps = piece_warps(shape.operation, shape.dtype, codec, shape.ranks);
  blocks.lanes = lanes_of(piece_bytes, blocks.block_bytes, warps, max_ctas);
  blocks.ctas = std::max(ctas_of(blocks.lanes, max_ctas), least_ctas(warps, shape.ranks));
  return blocks;
}

uint32_t wanted_ctas() {
  const char* text = std::getenv("NARROWCAST_MAX_CTAS");
  const long wanted = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  return wanted < 1 ? most_block_ctas : static_cast<uint32_t>(std::min<long>(wanted, most_block_ctas));
}

}  // namespace narrowcast::collective::cuda
