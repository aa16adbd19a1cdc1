#include "select/decision.h"

#include <algorithm>

#include "channel/packet/packet_area.h"
#include "codec/codec.h"
#include "plan/steps.h"

namespace narrowcast::select {
namespace {

// AUTO uses the codec if it saves at least this share of the time with values that shrink, and loses at most this share
// with values that do not.
constexpr double least_saved = 0.03, most_lost = 0.03;

// What ranks send to whom.
const char* plan_of_packets(Operation operation, bool two_shot) {
  if (operation == Operation::all_reduce) return two_shot ? "two_shot" : "one_shot";
  return plan_between_processes(operation);
}

// For links without measurements: up to this size latency dominates on any link.
constexpr uint64_t unmeasured_packet_bytes = 64 << 10;
// For links without measurements: from this size on, the link to host memory is slower than any codec.
constexpr uint64_t unmeasured_coded_bytes = 256 << 10;

// Long calls by blocks are as fast as the model predicts with this many CTAs, and proportionally slower with fewer.
// Measured with 8 to 64 CTAs between two H200 (bench/results/2xh200/2026-11-23_collectives_ctas.json).
constexpr double enough_ctas_raw = 20, enough_ctas_coded = 50;

constexpr size_t packets = index_of("packets"), blocks_raw = index_of("blocks:raw"),
                 blocks_window = index_of("blocks:window"), nccl = index_of("nccl");

bool can_code(ncast_codec codec, ncast_dtype dtype) { return codec::effective_codec(dtype, codec) != NCAST_CODEC_RAW; }

// With fewer warps a call by packets takes more turns. This is an estimate.
double slowdown_of_packets(const CallShape& shape) {
  if (!can_use_packets(shape.operation)) return 1;
  const auto warps = [&](uint32_t max_ctas) {
    const PacketShape chosen =
        choose_packet_shape(shape.operation, shape.bytes, shape.ranks, shape.link == Link::nvlink, max_ctas);
    return static_cast<double>(chosen.ctas * chosen.warps);
  };
  return std::max(1.0, warps(most_block_ctas) / warps(shape.max_ctas));
}

// The factor by which a limit of CTAs slows the call down.
double slowdown_of_few_ctas(const Candidate& candidate, const CallShape& shape) {
  if (shape.link == Link::host || candidate.transport == Transport::nccl) return 1;
  if (candidate.transport == Transport::packets) return slowdown_of_packets(shape);
  return std::max(1.0, (candidate.codec == NCAST_CODEC_RAW ? enough_ctas_raw : enough_ctas_coded) / shape.max_ctas);
}

// The bytes that the codec saves in this type, divided by those that it saves in bfloat16, the measured type.
double relative_saving(ncast_codec codec, ncast_dtype dtype) {
  const auto saved = [&](ncast_dtype type) { return 1 - codec::prior_ratio(codec, type); };
  return saved(NCAST_BFLOAT16) == 0 ? 1 : saved(dtype) / saved(NCAST_BFLOAT16);
}

// If the link is the bottleneck, the time of a type that shrinks less lies between those of the measured type and of
// incompressible values. If the codec is the bottleneck, these two are equal.
double for_dtype(ncast_codec codec, ncast_dtype dtype, const Cost& cost) {
  return cost.typical + (1 - relative_saving(codec, dtype)) * std::max(0.0, cost.incompressible - cost.typical);
}

struct TransportChoice {
  bool packets;
  const char* reason;
};

// Why packets cannot carry the call, or NULL.
const char* why_no_packets(const CallShape& shape) {
  if (!can_use_packets(shape.operation)) return "the operation has no packet kernels";
  if (shape.link == Link::host)
    return "packets need a link that delivers each store at once, which the host link does not guarantee";
  if (shape.bytes > most_packet_bytes(shape.operation, shape.ranks, shape.link == Link::nvlink))
    return "the values do not fit the packet buffers";
  return nullptr;
}

TransportChoice choose_transport(const CallShape& shape, ForcedTransport forced, const Costs& costs) {
  if (const char* const why_not = why_no_packets(shape)) return {false, why_not};
  if (forces_packets(forced)) return {true, "NARROWCAST_PATH asks for packets"};
  if (forced == ForcedTransport::blocks) return {false, "NARROWCAST_PATH asks for blocks"};
  const Cost &short_calls = costs[packets], &long_calls = costs[blocks_raw];
  if (long_calls.is_known() && !short_calls.is_known()) return {false, "packets were not measured"};
  const bool by_packets =
      long_calls.is_known() ? short_calls.typical < long_calls.typical : shape.bytes <= unmeasured_packet_bytes;
  if (by_packets) return {true, "at this size latency dominates, and packets need no fence"};
  return {false, "at this size bandwidth dominates, and blocks move more bytes per second"};
}

struct CodecChoice {
  bool coded;
  const char* reason;
};

// Whether encoded values are faster than raw values with their best transport.
CodecChoice choose_codec(const CallShape& shape, bool by_packets, const Costs& costs) {
  if (shape.operation == Operation::all_to_all_v) return {false, "the ranks do not know each other's counts"};
  const Cost &raw = costs[by_packets ? packets : blocks_raw], &coded = costs[blocks_window];
  const char* const link_is_bottleneck = "at this size the link is the bottleneck, and the codec reduces the traffic";
  const char* const coding_is_slow = "at this size coding takes at least as long as the traffic that it saves";
  if (!raw.is_known() || !coded.is_known()) {
    const bool is_coded = shape.link == Link::host && shape.bytes >= unmeasured_coded_bytes;
    return {is_coded, is_coded ? link_is_bottleneck : coding_is_slow};
  }
  if (coded.typical > raw.typical * (1 - least_saved))
    return {false, by_packets ? "at this size latency dominates, and coding adds to it" : coding_is_slow};
  // A larger loss is acceptable if NCCL is slower still.
  if (coded.incompressible > std::max(raw.typical, costs[nccl].typical) * (1 + most_lost))
    return {false, "incompressible values would lose too much by coding"};
  return {true, link_is_bottleneck};
}

Shots shots_of(ForcedTransport forced) {
  switch (forced) {
    case ForcedTransport::one_shot: return Shots::one;
    case ForcedTransport::two_shot: return Shots::two;
    default: return Shots::fastest;
  }
}
const char* shots_reason(const PacketShape& chosen, Shots shots, int ranks) {
  if (shots == (chosen.two_shot ? Shots::two : Shots::one)) return "NARROWCAST_PATH asks for it";
  if (shots == Shots::one) return "the values do not fit the packet buffers in one shot";
  if (shots == Shots::two) return "the values are too few for two shots";
  if (chosen.two_shot) return "a second shot saves more time than it adds";
  return ranks == 2 ? "between two ranks a second shot does not reduce the traffic"
                    : "a second shot adds more latency than it saves";
}

void decide_packets(const CallShape& shape, ForcedTransport forced, Decision* decision) {
  const Shots shots = shots_of(forced);
  const PacketShape chosen =
      choose_packet_shape(shape.operation, shape.bytes, shape.ranks, shape.link == Link::nvlink, shape.max_ctas, shots);
  decision->candidate = candidates[packets].name;
  decision->packets = chosen;
  decision->packet_bytes = channel::with_packet(chosen.lines, []<typename Packet>() { return Packet::bytes; });
  if (shape.operation == Operation::all_reduce) decision->shots_reason = shots_reason(chosen, shots, shape.ranks);
  decision->plan = plan_of_packets(shape.operation, chosen.two_shot);
  decision->predicted = decision->costs[packets];
}

void decide_blocks(const CallShape& shape, ncast_codec codec, Decision* decision) {
  const size_t candidate = index_of(Transport::blocks, codec);
  decision->candidate = candidates[candidate].name;
  decision->codec = codec;
  decision->blocks = choose_block_shape(shape, codec);
  decision->plan = decision->blocks->plan;
  decision->predicted = decision->costs[candidate];
}

// Calls of the host backend, whose ranks are processes.
Decision decide_frames(const CallShape& shape, const CostModel& model) {
  Decision decision;
  decision.costs = costs_of(shape, model);
  decision.codec = codec_between_processes(shape.codec);
  decision.plan = plan_between_processes(shape.operation);
  const size_t candidate = index_of(Transport::frames, decision.codec);
  decision.candidate = candidates[candidate].name;
  decision.predicted = decision.costs[candidate];
  decision.transport_reason = "the ranks are processes that share memory";
  decision.codec_reason = shape.codec == NCAST_CODEC_AUTO  ? "copying in memory is faster than coding on a CPU"
                          : shape.codec == NCAST_CODEC_RAW ? "raw was requested"
                                                           : "this codec was requested";
  return decision;
}

Decision decide_between_gpus(const CallShape& shape, const Policy& policy) {
  Decision decision;
  decision.costs = costs_of(shape, policy.costs);
  const TransportChoice transport = choose_transport(shape, policy.transport, decision.costs);
  decision.transport_reason = transport.reason;

  const auto raw = [&](const char* reason) {
    decision.codec_reason = reason;
    if (transport.packets)
      decide_packets(shape, policy.transport, &decision);
    else
      decide_blocks(shape, NCAST_CODEC_RAW, &decision);
    return decision;
  };
  const char* const packets_are_raw = "packets carry raw values";
  const auto coded = [&](ncast_codec codec, const char* reason) {
    decision.codec_reason = reason;
    if (transport.packets) decision.transport_reason = packets_are_raw;
    decide_blocks(shape, codec, &decision);
    return decision;
  };
  const bool is_auto = shape.codec == NCAST_CODEC_AUTO;
  const ncast_codec wanted = is_auto ? ncast_codec{NCAST_CODEC_WINDOW} : shape.codec;
  if (wanted == NCAST_CODEC_RAW) return raw("raw was requested");
  if (!can_code(wanted, shape.dtype)) return raw("the codec does not encode this type");
  if (!is_auto) return coded(wanted, "this codec was requested");
  if (forces_packets(policy.transport) && transport.packets) return raw(packets_are_raw);
  const CodecChoice codec = choose_codec(shape, transport.packets, decision.costs);
  return codec.coded ? coded(wanted, codec.reason) : raw(codec.reason);
}

}  // namespace

Costs costs_of(const CallShape& shape, const CostModel& model) {
  Costs costs;
  if (shape.ranks == 1) return costs;
  for (size_t i = 0; i < candidate_count; ++i) {
    const Candidate& candidate = candidates[i];
    if (!runs_on(candidate, shape.link)) continue;
    if (candidate.transport == Transport::frames) {
      costs[i].typical =
          model.measured(shape.operation, candidate.name, shape.bytes, shape.ranks, shape.link).value_or(0);
      continue;
    }
    if (candidate.transport == Transport::packets && why_no_packets(shape) != nullptr) continue;
    const bool coded = candidate.transport == Transport::blocks && candidate.codec != NCAST_CODEC_RAW;
    if (coded && !can_code(candidate.codec, shape.dtype)) continue;
    const auto predict = [&](Data data) {
      return model.predict(shape.operation, i, shape.bytes, shape.ranks, shape.link, data).value_or(0) *
             slowdown_of_few_ctas(candidate, shape);
    };
    costs[i] = {predict(Data::typical), predict(Data::incompressible)};
    costs[i].typical = for_dtype(candidate.codec, shape.dtype, costs[i]);
  }
  return costs;
}

const char* plan_between_processes(Operation operation) { return plan::has_plans(operation) ? "all_pairs" : nullptr; }

namespace {

Decision decide_built_in(const CallShape& shape, const Policy& policy) {
  if (shape.bytes == 0 && shape.operation != Operation::all_to_all_v) {
    Decision nothing;
    nothing.candidate = "none";
    nothing.transport_reason = nothing.codec_reason = "there are no values";
    return nothing;
  }
  if (shape.link == Link::shared_memory) return decide_frames(shape, policy.costs);
  if (shape.ranks == 1 && can_use_packets(shape.operation)) {
    Decision copy;
    copy.candidate = "copy";
    copy.transport_reason = copy.codec_reason = "a single rank copies its own values";
    return copy;
  }
  return decide_between_gpus(shape, policy);
}

double microseconds_of(const PlanCandidate& plan, const CallShape& shape, const Policy& policy) {
  return policy.costs.measured(shape.operation, cost_name_of(plan, shape), shape.bytes, shape.ranks, shape.link)
      .value_or(0);
}

struct PlanChoice {
  const PlanCandidate* plan = nullptr;
  const char* reason = nullptr;
};

// The plan that is predicted to be fastest, if it is faster than the built-in way.
PlanChoice choose_by_cost(const std::vector<const PlanCandidate*>& plans, const CallShape& shape,
                          const Decision& built_in, const Policy& policy) {
  PlanChoice choice;
  if (policy.transport != ForcedTransport::none) return choice;
  double fastest = built_in.predicted.typical * (1 - least_saved);
  for (const PlanCandidate* const plan : plans) {
    if (why_not_by_cost(*plan, shape) != nullptr) continue;
    const double microseconds = microseconds_of(*plan, shape, policy);
    if (microseconds == 0 || microseconds > fastest) continue;
    choice = {plan, "it is predicted to be faster than the built-in way"};
    fastest = microseconds;
  }
  return choice;
}

PlanChoice choose_plan(const CallShape& shape, const Decision& built_in, const Policy& policy) {
  std::vector<const PlanCandidate*> able;
  for (const auto& plan : *policy.plans)
    if (plan->operation == shape.operation && why_not(*plan, shape) == nullptr) able.push_back(plan.get());
  if (able.empty()) return {};
  if (policy.selector != nullptr && *policy.selector) {
    const int selected = (*policy.selector)(shape, able);
    if (selected >= 0 && static_cast<size_t>(selected) < able.size())
      return {able[static_cast<size_t>(selected)], "the selector of the communicator chose it"};
    if (selected != Selected::by_cost) return {};
  }
  for (const PlanCandidate* const plan : able)
    if (plan->always) return {plan, "it was added for all such calls"};
  return choose_by_cost(able, shape, built_in, policy);
}

}  // namespace

Decision decide(const CallShape& shape, const Policy& policy) {
  Decision decision = decide_built_in(shape, policy);
  if (policy.plans == nullptr || policy.plans->empty() || shape.bytes == 0 || shape.ranks == 1) return decision;
  const auto [plan, reason] = choose_plan(shape, decision, policy);
  if (plan == nullptr) return decision;
  decision.chosen = plan;
  decision.plan_reason = reason;
  decision.candidate = plan->name;
  decision.plan = plan->plan.c_str();
  decision.predicted = {microseconds_of(*plan, shape, policy), 0};
  if (plan->codec) {
    decision.codec = *plan->codec;
    decision.codec_reason = "the plan states the codec of its messages";
  }
  return decision;
}

std::vector<Alternative> alternatives_of(const CallShape& shape, const Decision& decision, const Policy& policy) {
  std::vector<Alternative> list;
  if (policy.plans == nullptr || shape.bytes == 0 || shape.ranks == 1) return list;
  const auto is_able = [&](const PlanCandidate& plan) { return why_not(plan, shape) == nullptr; };
  const auto alternative = [&](const PlanCandidate& plan) -> Alternative {
    const double microseconds = microseconds_of(plan, shape, policy);
    if (&plan == decision.chosen) return {&plan, microseconds, nullptr};
    const char* why = why_not(plan, shape);
    if (why == nullptr) why = why_not_by_cost(plan, shape);
    if (why == nullptr && microseconds == 0) why = "its time was not measured";
    return {&plan, microseconds, why != nullptr ? why : "it is not predicted to be faster"};
  };
  for (const auto& plan : *policy.plans) {
    if (plan->operation != shape.operation) continue;
    // A plan that was prepared for several types has the same name each time.
    const auto same = std::ranges::find_if(list, [&](const Alternative& one) { return one.plan->name == plan->name; });
    if (same == list.end())
      list.push_back(alternative(*plan));
    else if (plan.get() == decision.chosen || (is_able(*plan) && !is_able(*same->plan)))
      *same = alternative(*plan);
  }
  return list;
}

Comparison compare(const Decision& decision, std::string_view nccl_candidate) {
  Comparison result{decision.predicted.typical, decision.costs.of(nccl_candidate).typical, nullptr};
  if (result.nccl_microseconds == 0) result.nccl_microseconds = decision.costs[nccl].typical;
  if (result.microseconds == 0)
    result.reason = "the cost model does not know this call";
  else if (result.nccl_microseconds == 0)
    result.reason = "the cost model does not know how long NCCL takes";
  else if (result.microseconds >= result.nccl_microseconds)
    result.reason = "NCCL is predicted to be as fast";
  return result;
}

}  // namespace narrowcast::select
