#include "select/choice.h"

#include <algorithm>

#include "codec/codec.h"
#include "codec/window/format.h"

namespace narrowcast::select {
namespace {

// Coding is taken where it saves this part of the time at least with values that it shrinks, and costs this part at most
// with others.
constexpr double least_saved = 0.03, most_lost = 0.03;

// Where the model does not know the link. Up to here the time is latency, on any:
constexpr uint64_t unmeasured_packet_bytes = 64 << 10;
// and from here on the link from host memory is slower than any coder.
constexpr uint64_t unmeasured_coded_bytes = 256 << 10;

// So many CTAs a long call by blocks needs for the speed that the model has; with fewer it takes as much longer. Measured with
// 8 to 64 of them between two H200 (bench/results/2xh200/2026-11-23_collectives_ctas.json).
constexpr double enough_ctas_raw = 20, enough_ctas_coded = 50;

// A call by packets takes as many more turns; not measured.
double slowed_packets(const CallShape& shape) {
  const auto operation = packet_operation(shape.operation);
  if (!operation) return 1;
  const auto warps = [&](uint32_t max_ctas) {
    const PacketShape packets = choose_packet_shape(*operation, shape.bytes, shape.ranks, shape.nvlink, max_ctas);
    return static_cast<double>(packets.ctas * packets.warps);
  };
  return std::max(1.0, warps(most_block_ctas) / warps(shape.max_ctas));
}

double slowed_by_few_ctas(Path path, const CallShape& shape) {
  if (shape.over_host || is_nccl(path)) return 1;
  if (path == Path::packets) return slowed_packets(shape);
  return std::max(1.0, (path == Path::raw ? enough_ctas_raw : enough_ctas_coded) / shape.max_ctas);
}

// The bytes that the codec saves in this type, relative to those that it saves in bfloat16, the type of the measurements.
double saved_part(ncast_dtype dtype) {
  const auto saved = [](ncast_dtype type) { return 1 - codec::prior_ratio(NCAST_CODEC_WINDOW, type); };
  return saved(dtype) / saved(NCAST_BFLOAT16);
}

// Coded, where bytes take the time: between what they take with values that the codec shrinks as it does bfloat16, and with those
// that it does not shrink. Where coding takes it, they are coded all the same.
double coded(ncast_dtype dtype, double window, double window_random) {
  return window + (1 - saved_part(dtype)) * std::max(0.0, window_random - window);
}

struct PathChoice {
  bool packets;
  const char* reason;
};

// Packets cannot carry the call: why not, or nothing.
const char* why_no_packets(const CallShape& shape) {
  const auto operation = packet_operation(shape.operation);
  if (!operation) return "packets need every rank to take part alike";
  if (shape.over_host) return "packets are stores that are seen whole, which the host link does not promise";
  if (shape.bytes > most_packet_bytes(*operation, shape.ranks, shape.nvlink)) return "the buffers of packets hold less";
  return nullptr;
}

PathChoice choose_path(const CallShape& shape, WantedPath wanted, const Costs& costs) {
  if (const char* const why_not = why_no_packets(shape)) return {false, why_not};
  if (wanted == WantedPath::packets) return {true, "NARROWCAST_PATH asks for packets"};
  if (wanted == WantedPath::blocks) return {false, "NARROWCAST_PATH asks for blocks"};
  if (costs.raw != 0 && costs.packets == 0) return {false, "packets were not measured"};
  const bool packets = costs.raw != 0 ? costs.packets < costs.raw : shape.bytes <= unmeasured_packet_bytes;
  if (packets) return {true, "at this size the time is latency, and packets need no fence"};
  return {false, "at this size the time is bytes, of which blocks move more in a second"};
}

// Which codec is cheaper than values as they are, by the path that is best for those.
struct CodecChoice {
  bool coded;
  const char* reason;
};
CodecChoice choose_codec(const CallShape& shape, bool packets, const Costs& costs) {
  if (shape.operation == Operation::all_to_all_v) return {false, "how much goes to each rank is not known to all"};
  const double as_they_are = packets ? costs.packets : costs.raw;
  const char* const link_is_limit = "the link is the limit at this size, and coding shortens what crosses it";
  const char* const coding_is_slow = "at this size coding takes about as long as the bytes that it saves, or longer";
  if (as_they_are == 0 || costs.window == 0) {
    const bool coded = shape.over_host && shape.bytes >= unmeasured_coded_bytes;
    return {coded, coded ? link_is_limit : coding_is_slow};
  }
  if (costs.window > as_they_are * (1 - least_saved))
    return {false, packets ? "at this size the time is latency, which coding adds to" : coding_is_slow};
  // NCCL would be slower than either.
  if (costs.window_random > std::max(as_they_are, costs.nccl) * (1 + most_lost))
    return {false, "values that do not shrink would lose more by coding than it may cost"};
  return {true, link_is_limit};
}

// Into how many pieces the whole vector is cut, if it is.
int cut_for(const CallShape& shape) {
  switch (shape.operation) {
    case Operation::all_reduce: return shape.ranks;
    case Operation::reduce: return root_reduces(shape.ranks) ? shape.ranks : shape.ranks - 1;
    case Operation::broadcast: return shape.ranks - 1;
    default: return 1;
  }
}
// That the rank with the most of them sends, or receives.
uint32_t pieces_of(const CallShape& shape) {
  return is_point_to_point(shape.operation) ? 1 : static_cast<uint32_t>(shape.ranks) - 1;
}

}  // namespace

Costs costs_of(const CallShape& shape, const CostModel& model) {
  const auto predict = [&](Path path) {
    return model.predict(shape.operation, path, shape.bytes, shape.ranks, shape.over_host).value_or(0) *
           slowed_by_few_ctas(path, shape);
  };
  if (shape.ranks == 1) return {};
  const bool can_code = format::window::value_type(shape.dtype).value_bytes != 0;
  const double window_random = can_code ? predict(Path::window_random) : 0;
  return {why_no_packets(shape) == nullptr ? predict(Path::packets) : 0,
          predict(Path::raw),
          can_code ? coded(shape.dtype, predict(Path::window), window_random) : 0,
          window_random,
          predict(Path::nccl),
          predict(Path::nccl_default)};
}

Choice choose(const CallShape& shape, const Policy& policy) {
  const char* const alone = "a rank alone copies its own values";
  if (shape.ranks == 1 && packet_operation(shape.operation)) return {true, NCAST_CODEC_RAW, alone, alone};
  const Costs costs = costs_of(shape, policy.costs);
  const PathChoice path = choose_path(shape, policy.path, costs);
  const char* const as_they_are = "packets carry values as they are";
  const auto raw = [&](const char* reason) { return Choice{path.packets, NCAST_CODEC_RAW, reason, path.reason}; };
  const auto window = [&](const char* reason) {
    return Choice{false, NCAST_CODEC_WINDOW, reason, path.packets ? as_they_are : path.reason};
  };
  if (shape.codec == NCAST_CODEC_RAW) return raw("raw was asked for");
  if (format::window::value_type(shape.dtype).value_bytes == 0) return raw("the codec does not shrink this type");
  if (shape.codec == NCAST_CODEC_WINDOW) return window("window was asked for");
  if (policy.path == WantedPath::packets && path.packets) return raw(as_they_are);
  const CodecChoice codec = choose_codec(shape, path.packets, costs);
  return codec.coded ? window(codec.reason) : raw(codec.reason);
}

const Choice& RecentChoices::of(const CallShape& shape, const Policy& policy) {
  const uint64_t mixed = (shape.bytes << 8 | static_cast<uint64_t>(shape.operation) << 4 | shape.dtype) *
                         0x9e3779b97f4a7c15;  // 2^64 over the golden ratio, as Knuth hashes
  std::optional<Entry>& entry = entries_[(mixed >> 32) % entries_.size()];
  if (!entry || entry->shape != shape) entry = Entry{shape, choose(shape, policy)};
  return entry->choice;
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

bool root_reduces(int ranks) { return ranks == 2; }

uint32_t piece_warps(Operation operation, ncast_dtype dtype, ncast_codec codec) {
  const uint32_t bytes = block_bytes(dtype, codec);
  return reduces(operation) ? reduce_rings(reduce_warps(bytes, ncast_dtype_bytes(dtype))) : move_warps(bytes).senders;
}

uint32_t block_ctas(Operation operation, ncast_codec codec, uint64_t bytes, uint32_t max_ctas) {
  if (reduces(operation) || is_point_to_point(operation)) return max_ctas;
  const bool is_long = operation == Operation::all_to_all_v || bytes > most_bytes_of_copiers;
  return is_long ? std::min(max_ctas, most_block_ctas - own_copy_ctas(codec)) : max_ctas;
}

BlockShape choose_block_shape(const CallShape& shape, ncast_codec codec, uint32_t max_ctas) {
  BlockShape blocks{};
  blocks.block_bytes = block_bytes(shape.dtype, codec);
  blocks.warps = reduces(shape.operation) ? reduce_warps(blocks.block_bytes, ncast_dtype_bytes(shape.dtype))
                                          : move_warps(blocks.block_bytes).all();
  uint64_t piece_bytes = shape.bytes;
  if (const int cut = cut_for(shape); cut > 1) {
    const BlockPieces pieces(shape.bytes, cut, blocks.block_bytes);
    piece_bytes = 0;
    for (int piece = 0; piece < cut; ++piece) piece_bytes = std::max(piece_bytes, pieces.bytes(piece));
  }
  max_ctas = block_ctas(shape.operation, codec, shape.bytes, max_ctas);
  const uint32_t warps = max_ctas * piece_warps(shape.operation, shape.dtype, codec);
  if (reduces(shape.operation)) {
    blocks.rings = rings_in_step(piece_bytes, blocks.block_bytes, warps);
    blocks.ctas = ctas_of(blocks.rings, max_ctas);
  } else {
    blocks.rings = rings_of(piece_bytes, blocks.block_bytes, warps);
    blocks.ctas = ctas_of(blocks.rings * pieces_of(shape), max_ctas);
  }
  return blocks;
}

}  // namespace narrowcast::select
