#include "select/network_costs.h"

#include <algorithm>

#include "codec/codec.h"

namespace narrowcast::select {
namespace {

// Bytes of values per microsecond that a core encodes, or decodes, with `window`
// (bench/results/epyc/2026-11-29_codec_peers.json and docs/guide/communicator.md). Other codecs are assumed to be as
// fast.
constexpr double coded_bytes_per_us = 3000;
// What is encoded at once (executor/host/staging.cc).
constexpr double chunk_bytes = 256 << 10;

// Between GPUs: what a call takes at least, and what it takes longer because its blocks are encoded and decoded. These
// are estimates.
constexpr double gpu_call_us = 40, gpu_coding_us = 2;

// Bytes of values of the busiest rank.
struct Load {
  double sent, coded;  // coded: encoded and decoded
};

Load load_of(const CallShape& shape) {
  const auto bytes = static_cast<double>(shape.bytes);
  const double others = shape.ranks - 1;
  switch (shape.operation) {
    case Operation::send:
    case Operation::recv: return {bytes, bytes};
    case Operation::broadcast: return {others * bytes, bytes};
    case Operation::reduce:
    case Operation::gather:
    case Operation::scatter: return {others * bytes, others * bytes};
    case Operation::all_gather: return {others * bytes, (1 + others) * bytes};
    case Operation::all_reduce: return {2 * others / shape.ranks * bytes, (2 * others + 1) / shape.ranks * bytes};
    default: return {others * bytes, 2 * others * bytes};
  }
}

}  // namespace

Cost network_cost(const CallShape& shape, ncast_codec codec, double gbps) {
  const bool on_gpus = shape.link == Link::gpu_network;
  const double link_bytes_per_us = gbps * 1e3 / 8;
  const Load load = load_of(shape);
  const double begin = on_gpus ? gpu_call_us : 0;
  const double raw = load.sent / link_bytes_per_us;
  if (codec::id_of(codec) == NCAST_CODEC_RAW) return {begin + raw, begin + raw};
  const double chunk = std::min(chunk_bytes, static_cast<double>(shape.bytes));
  const double ends = begin + (on_gpus ? gpu_coding_us : 2 * chunk / coded_bytes_per_us);
  const double coding = on_gpus ? 0 : load.coded / coded_bytes_per_us;
  const double shorter = raw * codec::prior_ratio(codec, shape.dtype);
  Cost cost = {ends + std::max(shorter, coding), ends + std::max(raw, coding)};
  if (codec::find_row(codec)->has_fixed_payload()) cost.incompressible = cost.typical;
  return cost;
}

}  // namespace narrowcast::select
