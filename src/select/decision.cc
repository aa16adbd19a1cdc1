#include "select/decision.h"

#include "channel/packet/packet_area.h"
#include "codec/codec.h"
#include "select/allowed_codecs.h"
#include "select/call_costs.h"
#include "select/codec_choice.h"
#include "select/frames.h"
#include "select/plan_choice.h"
#include "select/two_levels.h"

namespace narrowcast::select {
namespace {

// What ranks send to whom.
const char* plan_of_packets(Operation operation, bool two_shot) {
  if (operation == Operation::all_reduce) return two_shot ? "two_shot" : "one_shot";
  return plan_between_processes(operation);
}

// For links without measurements: up to this size latency dominates on any link.
constexpr uint64_t unmeasured_packet_bytes = 64 << 10;

size_t packets() {
  static const size_t index = index_of("packets");
  return index;
}

struct TransportChoice {
  bool packets;
  const char* reason;
};

TransportChoice choose_transport(const CallShape& shape, ForcedTransport forced, const Costs& costs) {
  if (const char* const why_not = why_no_packets(shape)) return {false, why_not};
  if (forces_packets(forced)) return {true, "NARROWCAST_PATH asks for packets"};
  if (forced == ForcedTransport::blocks) return {false, "NARROWCAST_PATH asks for blocks"};
  const Cost &short_calls = costs[packets()], &long_calls = costs[index_of(Transport::blocks, NCAST_CODEC_RAW)];
  if (long_calls.is_known() && !short_calls.is_known()) return {false, "packets were not measured"};
  const bool by_packets =
      long_calls.is_known() ? short_calls.typical < long_calls.typical : shape.bytes <= unmeasured_packet_bytes;
  if (by_packets) return {true, "at this size latency dominates, and packets need no fence"};
  return {false, "at this size bandwidth dominates, and blocks move more bytes per second"};
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

void decide_packets(const CallShape& shape, ForcedTransport forced, const Costs& costs, Decision* decision) {
  const Shots shots = shots_of(forced);
  const PacketShape chosen = choose_packet_shape(shape.operation, shape.bytes, shape.ranks, shape.link,
                                                 most_ctas_of_packets(shape, shape.max_ctas), shots);
  decision->candidate = candidates()[packets()].name;
  decision->packets = chosen;
  decision->packet_bytes = channel::with_packet(chosen.form, []<typename Packet>() { return Packet::bytes; });
  if (shape.operation == Operation::all_reduce) decision->shots_reason = shots_reason(chosen, shots, shape.ranks);
  decision->plan = plan_of_packets(shape.operation, chosen.two_shot);
  decision->predicted = costs[packets()];
}

void decide_blocks(const CallShape& shape, ncast_codec codec, const Costs& costs, Decision* decision) {
  const size_t candidate = index_of(Transport::blocks, codec);
  decision->candidate = candidates()[candidate].name;
  decision->codec = codec;
  decision->blocks = choose_block_shape(shape, codec);
  decision->plan = decision->blocks->plan;
  decision->predicted = costs[candidate];
}

Decision decide_between_gpus(const CallShape& shape, const Policy& policy);

// The ranks do not know each other's counts. So all of them run the kernel of the codec that suits long pieces, with
// which each can send encoded and raw blocks.
CodecChoice codec_of_counts(const CallShape& shape, const Policy& policy) {
  const ncast_codec codec = decide_between_gpus(with_long_pieces(shape), policy).codec;
  if (codec == NCAST_CODEC_RAW) return {codec, "not even long pieces gain from coding"};
  return {codec, "each rank encodes the pieces that gain from it"};
}

Decision decide_between_gpus(const CallShape& shape, const Policy& policy) {
  Decision decision;
  const Costs costs = costs_of(shape, policy.costs);
  const TransportChoice transport = choose_transport(shape, policy.transport, costs);
  decision.transport_reason = transport.reason;
  decision.nccl = costs[index_of("nccl")];
  decision.nccl_default = costs[index_of("nccl:default")];

  CodecChoice codec =
      choose_codec(shape, Transport::blocks,
                   transport.packets ? packets() : index_of(Transport::blocks, NCAST_CODEC_RAW), costs, policy.costs);
  const AllowedCodecs allowed = allowed_codecs(shape);
  if (shape.operation == Operation::all_to_all_v && !allowed.forced && !allowed.codecs.empty())
    codec = codec_of_counts(shape, policy);
  const char* const packets_are_raw = "packets carry raw values";
  if (codec.codec != NCAST_CODEC_RAW && transport.packets) {
    // A forced codec precedes a forced transport.
    if (forces_packets(policy.transport) && !codec::is_forced(shape.codec))
      codec = {NCAST_CODEC_RAW, packets_are_raw};
    else
      decision.transport_reason = packets_are_raw;
  }
  decision.codec_reason = codec.reason;
  if (codec.codec == NCAST_CODEC_RAW && transport.packets)
    decide_packets(shape, policy.transport, costs, &decision);
  else
    decide_blocks(shape, codec.codec, costs, &decision);
  return decision;
}

Decision decide_built_in(const CallShape& shape, const Policy& policy) {
  if (shape.bytes == 0 && shape.operation != Operation::all_to_all_v) {
    Decision nothing;
    nothing.candidate = "none";
    nothing.transport_reason = nothing.codec_reason = "there are no values";
    // Processes run its plan nevertheless, and so notice if they make different calls.
    if (is_between_processes(shape.link)) nothing.plan = plan_of_frames(shape, true);
    return nothing;
  }
  if (is_between_processes(shape.link)) return decide_frames(shape, policy.costs);
  if (shape.ranks == 1 && can_use_packets(shape.operation)) {
    Decision copy;
    copy.candidate = "copy";
    copy.transport_reason = copy.codec_reason = "a single rank copies its own values";
    return copy;
  }
  return decide_between_gpus(shape, policy);
}

Decision decide_with_two_codecs(const CallShape& shape, ncast_codec result_codec, const Policy& policy) {
  Decision decision = decide_built_in(with_one_codec(shape), policy);
  if (decision.codec == NCAST_CODEC_RAW) return decision;
  decision.codec = codec::without_flag(shape.codec);
  decision.result_codec = codec::without_flag(result_codec);
  if (shape.has_levels && !codec::is_exact(codec::effective_codec(shape.dtype, result_codec)))
    decision.plan = plan_of_frames(shape, false);
  return decision;
}

}  // namespace

Decision decide(const CallShape& shape, const Policy& policy) {
  if (shape.link == Link::two_levels) return decide_two_levels(shape, policy);
  Decision decision =
      shape.result_codec ? decide_with_two_codecs(shape, *shape.result_codec, policy) : decide_built_in(shape, policy);
  decision.built_in_plan = decision.plan;
  if (shape.result_codec || policy.plans == nullptr || policy.plans->empty() || shape.bytes == 0 || shape.ranks == 1)
    return decision;
  const auto [plan, reason] = choose_plan(shape, decision, policy);
  if (plan == nullptr) return decision;
  decision.chosen = plan;
  decision.plan_reason = reason;
  decision.candidate = plan->name;
  decision.plan = plan->plan.c_str();
  const PlanTime time = time_of(*plan, shape, policy, decision.codec);
  decision.predicted = {time.microseconds, 0};
  if (plan->codec)
    decision.codec_reason = "the plan states the codec of its messages";
  else if (time.codec != decision.codec)
    decision.codec_reason = "the plan is predicted to be fastest with it";
  decision.codec = time.codec;
  return decision;
}

Comparison compare(const Decision& decision, bool with_default) {
  Comparison result{decision.predicted.typical, (with_default ? decision.nccl_default : decision.nccl).typical,
                    nullptr};
  if (result.nccl_microseconds == 0) result.nccl_microseconds = decision.nccl.typical;
  if (result.microseconds == 0)
    result.reason = "the cost model does not know this call";
  else if (result.nccl_microseconds == 0)
    result.reason = "the cost model does not know how long NCCL takes";
  else if (result.microseconds >= result.nccl_microseconds)
    result.reason = "NCCL is predicted to be as fast";
  return result;
}

}  // namespace narrowcast::select
