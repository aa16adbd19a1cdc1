#include "select/call_costs.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "codec/codec.h"
#include "operation/scaled_sum.h"
#include "select/allowed_codecs.h"
#include "select/block_split.h"
#include "select/network_costs.h"
#include "select/packet_shape.h"

namespace narrowcast::select {
namespace {

// Long calls by blocks are nearly as fast as the model predicts with this many CTAs, and proportionally slower with
// few.
// Measured with 8 to 64 CTAs between two H200 (bench/results/2xh200/2026-11-23_collectives_ctas.json), and through host
// memory with 4 to 16 (2026-11-29_collectives_host_ctas.json). PCIe is assumed to be as slow as host memory.
double enough_ctas(const Candidate& candidate, const CallShape& shape) {
  const bool is_one_way = is_point_to_point(shape.operation) || has_root(shape.operation);
  if (shape.link == Link::nvlink) return candidate.is_coded() ? 50 : is_one_way ? 17 : 20;
  return candidate.is_coded() && reduces(shape.operation) ? 7 : 5;
}
// Raw values saturate NVLink gradually: calls with few CTAs would otherwise appear faster than NCCL.
double slowdown_of_blocks(const Candidate& candidate, const CallShape& shape, double ctas) {
  const double enough = enough_ctas(candidate, shape);
  if (shape.link != Link::nvlink || candidate.is_coded()) return std::max(1.0, enough / ctas);
  constexpr double sharpness = 4;
  const auto of = [&](double some) { return std::pow(1 + std::pow(enough / some, sharpness), 1 / sharpness); };
  return std::max(1.0, of(ctas) / of(most_block_ctas));
}
// With fewer warps in a CTA each of them is faster: the speed of the CTA is a power of the number of those that send or
// reduce. Fitted to CTAs of 99 KiB between two H200 (bench/results/2xh200/2026-11-29_shared_memory.json), within 2%.
constexpr double power_of_warps = 0.8;

// The speed of a CTA relative to that of the measured ones.
double speed_of_ctas(const CallShape& shape, uint32_t measured_bytes) {
  const auto warps = [&](uint32_t shared_bytes) {
    const uint32_t rings = reduce_rings(reduce_warps(shared_bytes, 4096, ncast_dtype_bytes(shape.dtype)));
    return static_cast<double>(reduces(shape.operation) ? rings : move_warps(shared_bytes, 4096).senders);
  };
  return std::pow(warps(shape.shared_bytes) / warps(measured_bytes), power_of_warps);
}

// With fewer warps a call by packets takes more turns. This is an estimate.
double slowdown_of_packets(const CallShape& shape) {
  if (!can_use_packets(shape.operation)) return 1;
  const auto warps = [&](uint32_t max_ctas) {
    const PacketShape chosen = choose_packet_shape(shape.operation, shape.bytes, shape.ranks, shape.link, max_ctas);
    return static_cast<double>(chosen.ctas * chosen.warps);
  };
  const auto most = [&](uint32_t max_ctas) { return most_ctas_of_packets(shape, max_ctas); };
  return std::max(1.0, warps(most(most_block_ctas)) / warps(most(shape.max_ctas)));
}

// The factor by which a limit of CTAs slows the call down.
double slowdown_of_few_ctas(const Candidate& candidate, const CallShape& shape, const CostModel& model) {
  if (candidate.transport == Transport::nccl) return 1;
  if (candidate.transport == Transport::packets) return slowdown_of_packets(shape);
  return slowdown_of_blocks(candidate, shape, shape.max_ctas * speed_of_ctas(shape, model.shared_bytes()));
}

// The bytes that the codec saves in this type, divided by those that the measured codec saves in bfloat16, the measured
// type.
double relative_saving(ncast_codec codec, ncast_dtype dtype, ncast_codec measured) {
  const double saved_there = 1 - codec::prior_ratio(measured, NCAST_BFLOAT16);
  return saved_there == 0 ? 1 : (1 - codec::prior_ratio(codec, dtype)) / saved_there;
}

// The cost of a codec and a type from that of a measured codec. If the link is the bottleneck, the time is linear in
// the bytes saved: `incompressible` saves none. If the codec is the bottleneck, the measured times are equal.
Cost adapted(const Cost& cost, ncast_codec measured, ncast_codec codec, ncast_dtype dtype) {
  const double slope = std::max(0.0, cost.incompressible - cost.typical);
  Cost made = cost;
  made.typical += (1 - relative_saving(codec, dtype, measured)) * slope;
  if (codec != measured) made.typical = std::max(made.typical, cost.incompressible * codec::prior_ratio(codec, dtype));
  // Payloads of a fixed length are as short for any values.
  if (codec::find_row(codec)->has_fixed_payload()) made.incompressible = made.typical;
  return made;
}

// The candidate whose time is derived from another's. measured: the times of those that were measured.
std::optional<size_t> derived_candidate(const CallShape& shape, const Costs& measured) {
  if (shape.codec == NCAST_CODEC_AUTO) return std::nullopt;
  AllowedCodecs allowed = allowed_codecs(shape);
  if (codec::is_within(shape.codec)) std::erase_if(allowed.codecs, codec::is_exact);
  const auto candidate_of = [](ncast_codec codec) { return index_of(Transport::blocks, codec); };
  for (const ncast_codec codec : allowed.codecs)
    if (measured[candidate_of(codec)].is_known()) return std::nullopt;
  if (allowed.codecs.empty()) return std::nullopt;
  return candidate_of(allowed.codecs.front());
}

// Adapts the times of codecs, which were measured with bfloat16, to the type of the call, and derives that of the codec
// that the call names if it was not measured. Otherwise no call chooses among derived times, which are those of a codec
// of another speed: if none of the lossy codecs that meet an error budget was measured, it is the one with the shortest
// payloads whose time is derived.
void adapt_codecs(const CallShape& shape, Costs* costs) {
  const auto is_measured = [&](const Candidate& candidate) {
    const auto index = static_cast<size_t>(&candidate - candidates().data());
    return candidate.transport == Transport::blocks && candidate.is_coded() && (*costs)[index].is_known();
  };
  const auto known = std::ranges::find_if(candidates(), is_measured);
  if (known == candidates().end()) return;
  const Costs measured = *costs;
  const std::optional<size_t> derived = derived_candidate(shape, measured);
  for (size_t i = 0; i < candidates().size(); ++i) {
    const Candidate& candidate = candidates()[i];
    if (candidate.transport != Transport::blocks || !candidate.is_coded()) continue;
    (*costs)[i] = {};
    if (!can_code(candidate.codec, shape.dtype)) continue;
    if (measured[i].is_known())
      (*costs)[i] = adapted(measured[i], candidate.codec, candidate.codec, shape.dtype);
    else if (i == derived)
      (*costs)[i] = adapted(measured[static_cast<size_t>(known - candidates().begin())], known->codec, candidate.codec,
                            shape.dtype);
  }
}

// Between hosts, `auto` chooses between raw and the codec whose speed is known. The others are predicted only for calls
// that name them.
bool is_predicted(const Candidate& candidate, const CallShape& shape) {
  if (!candidate.is_coded()) return true;
  if (!can_code(candidate.codec, shape.dtype)) return false;
  if (shape.codec == NCAST_CODEC_AUTO) return candidate.codec == NCAST_CODEC_WINDOW;
  const AllowedCodecs allowed = allowed_codecs(shape);
  return !allowed.codecs.empty() && codec::id_of(allowed.codecs.front()) == candidate.codec;
}

}  // namespace

CallShape with_one_codec(CallShape shape) {
  if (shape.result_codec && codec::id_of(shape.codec) == NCAST_CODEC_RAW) shape.codec = *shape.result_codec;
  shape.result_codec.reset();
  return shape;
}

const char* why_no_packets(const CallShape& shape) {
  if (shape.link == Link::gpu_network) return "packets do not reach other hosts";
  if (!can_use_packets(shape.operation)) return "the operation has no packet kernels";
  if (shape.redop == operation::scaled_sum) return "the packet kernels do not multiply values";
  if (shape.bytes > most_packet_bytes(shape.operation, shape.ranks, shape.link))
    return "the values do not fit the packet buffers";
  return nullptr;
}

uint32_t most_ctas_of_packets(const CallShape& shape, uint32_t max_ctas) {
  return most_ctas(shape.link, NCAST_CODEC_RAW, max_ctas, shape.shared_bytes);
}

Costs costs_of(const CallShape& shape, const CostModel& model) {
  if (shape.result_codec) return costs_of(with_one_codec(shape), model);
  Costs costs(candidates().size());
  if (shape.ranks == 1) return costs;
  const bool by_network = is_between_hosts(shape.link) && !model.is_measured(shape.link);
  for (size_t i = 0; i < candidates().size(); ++i) {
    const Candidate& candidate = candidates()[i];
    if (!runs_on(candidate, shape.link)) continue;
    if (by_network) {
      if (candidate.transport != Transport::nccl && is_predicted(candidate, shape))
        costs[i] = network_cost(shape, candidate.codec, model.network_gbps().value_or(assumed_network_gbps));
      continue;
    }
    if (candidate.transport == Transport::frames || shape.link == Link::two_levels) {
      costs[i].typical =
          model.measured(shape.operation, candidate.name, shape.bytes, shape.ranks, shape.link).value_or(0);
      continue;
    }
    if (candidate.transport == Transport::packets && why_no_packets(shape) != nullptr) continue;
    const auto predict = [&](Data data) {
      return model.predict(shape.operation, i, shape.bytes, shape.ranks, shape.link, data).value_or(0) *
             slowdown_of_few_ctas(candidate, shape, model);
    };
    costs[i] = {predict(Data::typical), predict(Data::incompressible)};
  }
  if (!by_network) adapt_codecs(shape, &costs);
  return costs;
}

}  // namespace narrowcast::select
