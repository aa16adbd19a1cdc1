#include "select/sm_time.h"

#include <algorithm>
#include <vector>

#include "select/allowed_codecs.h"
#include "select/block_split.h"
#include "select/call_costs.h"
#include "select/codec_choice.h"
#include "select/packet_shape.h"

namespace narrowcast::select {
namespace {

// That of calls which take less: under a microsecond of a whole GPU. Of such calls the fastest way is taken.
constexpr double least_sm_microseconds = 100;

// The limits of CTAs that are considered, besides that of the communicator. Long all-reduces need multiples of four.
constexpr uint32_t limits[] = {4, 8, 12, 16, 20, 24, 32, 48};

// NCCL logs "24 coll channels" for H100 and H200 with NVLink. Recent versions give each of them at least 32 KiB.
constexpr uint32_t nccl_channels = 24;
constexpr uint64_t nccl_bytes_of_channel = 32 << 10;

// The ways that the call allows.
std::vector<Way> allowed_ways(const CallShape& shape) {
  std::vector<Way> ways = {{Transport::packets, NCAST_CODEC_RAW, shape.max_ctas},
                           {Transport::blocks, NCAST_CODEC_RAW, shape.max_ctas}};
  for (const ncast_codec codec : allowed_codecs(shape).codecs)
    if (can_code(codec, shape.dtype)) ways.push_back({Transport::blocks, codec, shape.max_ctas});
  return ways;
}

// shape: with the limit of the way.
uint32_t ctas_of(const Way& way, const CallShape& shape) {
  if (way.transport == Transport::blocks) return choose_block_shape(shape, way.codec).all_ctas();
  const uint32_t most = most_ctas_of_packets(shape, way.max_ctas);
  return choose_packet_shape(shape.operation, shape.bytes, shape.ranks, shape.link, most).ctas;
}

}  // namespace

std::optional<Way> way_of_least_sm_time(const CallShape& shape, const CostModel& model, double most_microseconds) {
  struct Timed {
    Way way;
    double microseconds, sm_microseconds;
  };
  std::vector<Timed> all;
  const auto add_ways = [&](uint32_t max_ctas) {
    CallShape limited = shape;
    limited.max_ctas = max_ctas;
    const Costs costs = costs_of(limited, model);
    for (const Way& way : allowed_ways(limited)) {
      const Cost& cost = costs[index_of(way.transport, way.codec)];
      if (cost.is_known() && cost.typical <= most_microseconds &&
          cost.incompressible <= most_microseconds * (1 + most_lost))
        all.push_back({way, cost.typical, sm_time(ctas_of(way, limited), cost.typical)});
    }
  };
  for (const uint32_t limit : limits)
    if (limit < shape.max_ctas) add_ways(limit);
  add_ways(shape.max_ctas);
  if (all.empty()) return std::nullopt;
  const double least = std::ranges::min(all, {}, &Timed::sm_microseconds).sm_microseconds;
  std::erase_if(all, [&](const Timed& one) { return one.sm_microseconds > least * (1 + least_saved); });
  return std::ranges::min(all, {}, &Timed::microseconds).way;
}

double sm_time(uint32_t ctas, double microseconds) { return std::max(ctas * microseconds, least_sm_microseconds); }

uint32_t ctas_of_nccl(const CallShape& shape) {
  if (shape.link != Link::nvlink) return 0;
  const auto traffic = [&]() -> uint64_t {
    switch (operation::describe(shape.operation).bus_factor) {
      case operation::BusFactor::ONE: return shape.bytes;
      case operation::BusFactor::OTHERS: return shape.bytes * static_cast<uint64_t>(shape.ranks);
      default: return shape.bytes * 2;
    }
  };
  return traffic() >= nccl_channels * nccl_bytes_of_channel ? nccl_channels : 0;
}

}  // namespace narrowcast::select
