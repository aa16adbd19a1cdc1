#include "select/decision.h"

#include <algorithm>
#include <cmath>

#include "channel/packet/packet_area.h"
#include "codec/codec.h"
#include "operation/scaled_sum.h"
#include "plan/steps.h"
#include "select/allowed_codecs.h"
#include "select/network_costs.h"

namespace narrowcast::select {
namespace {

// A codec that is not forced is used if it saves at least this share of the time with values that shrink, and loses at
// most this share with values that do not.
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

// A piece for whose time only bandwidth counts.
constexpr uint64_t long_piece_bytes = 256 << 20;

// Long calls by blocks are as fast as the model predicts with this many CTAs, and proportionally slower with fewer.
// Measured with 8 to 64 CTAs between two H200 (bench/results/2xh200/2026-11-23_collectives_ctas.json), and through host
// memory with 4 to 16 (2026-11-29_collectives_host_ctas.json). PCIe is assumed to be as slow as host memory.
double enough_ctas(const Candidate& candidate, const CallShape& shape) {
  if (shape.link == Link::nvlink) return candidate.is_coded() ? 50 : 20;
  return candidate.is_coded() && reduces(shape.operation) ? 7 : 5;
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

size_t packets() {
  static const size_t index = index_of("packets");
  return index;
}

bool can_code(ncast_codec codec, ncast_dtype dtype) { return codec::effective_codec(dtype, codec) != NCAST_CODEC_RAW; }

uint32_t most_ctas_of_packets(const CallShape& shape, uint32_t max_ctas) {
  return most_ctas(shape.link, NCAST_CODEC_RAW, max_ctas, shape.shared_bytes);
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
  return std::max(1.0, enough_ctas(candidate, shape) / (shape.max_ctas * speed_of_ctas(shape, model.shared_bytes())));
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

struct TransportChoice {
  bool packets;
  const char* reason;
};

// Why packets cannot carry the call, or NULL.
const char* why_no_packets(const CallShape& shape) {
  if (!can_use_packets(shape.operation)) return "the operation has no packet kernels";
  if (shape.redop == operation::scaled_sum) return "the packet kernels do not multiply values";
  if (shape.bytes > most_packet_bytes(shape.operation, shape.ranks, shape.link))
    return "the values do not fit the packet buffers";
  return nullptr;
}

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

struct CodecChoice {
  ncast_codec codec;
  const char* reason;
};

// Why encoded values are not used, by their costs; NULL if they are.
const char* why_not_coded(const Cost& raw, const Cost& coded, const Cost& nccl, const char* too_slow) {
  if (coded.typical > raw.typical * (1 - least_saved)) return too_slow;
  // A larger loss is acceptable if NCCL is slower still.
  if (coded.incompressible > std::max(raw.typical, nccl.typical) * (1 + most_lost))
    return "incompressible values would lose too much by coding";
  return nullptr;
}

// The reason for a choice by an error budget; otherwise the one given. is_measured: the time of the chosen codec is.
const char* reason_of(const CallShape& shape, ncast_codec chosen, bool is_measured, const char* reason) {
  if (!codec::is_within(shape.codec)) return reason;
  if (!allowed_codecs(shape).has_lossy())
    return chosen == NCAST_CODEC_RAW ? "no lossy codec meets the error budget, and coding without loss is not faster"
                                     : "no lossy codec meets the error budget, and this one loses nothing";
  if (chosen == NCAST_CODEC_RAW) return reason;
  return is_measured ? "it meets the error budget, and is predicted to be faster than the others that do"
                     : "it meets the error budget, with shorter payloads than the others that do, none of which was "
                       "measured";
}

// The fastest of raw values with their best transport and the allowed codecs. raw: the candidate of raw values.
CodecChoice fastest_codec(const CallShape& shape, Transport coded_transport, size_t raw, const Costs& costs) {
  const AllowedCodecs allowed = allowed_codecs(shape);
  if (allowed.codecs.empty()) return {NCAST_CODEC_RAW, "raw was requested"};
  std::vector<ncast_codec> able;
  for (const ncast_codec codec : allowed.codecs)
    if (can_code(codec, shape.dtype)) able.push_back(codec);
  if (able.empty()) return {NCAST_CODEC_RAW, "no allowed codec encodes this type"};
  const auto cost_of = [&](ncast_codec codec) { return costs[index_of(coded_transport, codec)]; };
  const auto time_with = [&](ncast_codec codec) { return cost_of(codec).typical; };
  const auto is_unknown = [&](ncast_codec codec) { return !cost_of(codec).is_known(); };
  if (allowed.forced) {
    if (!std::ranges::all_of(able, is_unknown)) std::erase_if(able, is_unknown);
    return {*std::ranges::min_element(able, {}, time_with), "this codec is forced"};
  }
  if (shape.operation == Operation::all_to_all_v) return {NCAST_CODEC_RAW, "the ranks do not know each other's counts"};

  const bool in_memory = shape.link == Link::shared_memory;
  const char* const link_is_bottleneck = "at this size the link is the bottleneck, and the codec reduces the traffic";
  const char* const coding_is_slow = in_memory
                                         ? "copying in memory is faster than coding on a CPU"
                                         : "at this size coding takes at least as long as the traffic that it saves";
  const char* const too_slow = candidates()[raw].transport == Transport::packets
                                   ? "at this size latency dominates, and coding adds to it"
                                   : coding_is_slow;
  const ncast_codec first = able.front();
  std::erase_if(able, is_unknown);
  if (!costs[raw].is_known() || able.empty()) {
    const bool is_coded = shape.link == Link::host && shape.bytes >= unmeasured_coded_bytes;
    return is_coded ? CodecChoice{first, link_is_bottleneck} : CodecChoice{NCAST_CODEC_RAW, coding_is_slow};
  }
  const auto why_not = [&](ncast_codec codec) {
    return why_not_coded(costs[raw], cost_of(codec), costs[index_of("nccl")], too_slow);
  };
  const char* const why_not_fastest = why_not(*std::ranges::min_element(able, {}, time_with));
  std::erase_if(able, [&](ncast_codec codec) { return why_not(codec) != nullptr; });
  if (able.empty()) return {NCAST_CODEC_RAW, why_not_fastest};
  return {*std::ranges::min_element(able, {}, time_with), link_is_bottleneck};
}

CodecChoice choose_codec(const CallShape& shape, Transport coded_transport, size_t raw, const Costs& costs,
                         const CostModel& model) {
  CodecChoice choice = fastest_codec(shape, coded_transport, raw, costs);
  const size_t candidate = index_of(coded_transport, choice.codec);
  const bool is_measured = model.predict(shape.operation, candidate, shape.bytes, shape.ranks, shape.link).has_value();
  choice.reason = reason_of(shape, choice.codec, is_measured, choice.reason);
  return choice;
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

// Calls of the host backend, whose ranks are processes.
Decision decide_frames(const CallShape& shape, const CostModel& model) {
  Decision decision;
  const Costs costs = costs_of(shape, model);
  CodecChoice choice =
      choose_codec(shape, Transport::frames, index_of(Transport::frames, NCAST_CODEC_RAW), costs, model);
  const AllowedCodecs allowed = allowed_codecs(shape);
  if (shape.link == Link::network && shape.operation == Operation::all_to_all_v && !allowed.forced &&
      !allowed.codecs.empty()) {
    // The ranks do not know each other's counts. So all of them use the codec that suits long pieces.
    CallShape longest = shape;
    longest.operation = Operation::all_to_all;
    longest.bytes = long_piece_bytes;
    choice = {decide_frames(longest, model).codec, "it suits long pieces"};
  }
  decision.codec = choice.codec;
  decision.codec_reason = choice.reason;
  const bool is_exact = codec::is_exact(codec::effective_codec(shape.dtype, decision.codec));
  decision.plan =
      shape.has_levels ? plan_between_hosts(shape.operation, is_exact) : plan_between_processes(shape.operation);
  const size_t candidate = index_of(Transport::frames, decision.codec);
  decision.candidate = candidates()[candidate].name;
  decision.predicted = costs[candidate];
  decision.transport_reason = shape.link == Link::network ? "the ranks are processes on several hosts"
                                                          : "the ranks are processes that share memory";
  return decision;
}

Decision decide_between_gpus(const CallShape& shape, const Policy& policy);

// The ranks do not know each other's counts. So all of them run the kernel of the codec that suits long pieces, with
// which each can send encoded and raw blocks.
CodecChoice codec_of_counts(const CallShape& shape, const Policy& policy) {
  CallShape longest = shape;
  longest.operation = Operation::all_to_all;
  longest.bytes = long_piece_bytes;
  const ncast_codec codec = decide_between_gpus(longest, policy).codec;
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

// A call with two codecs is measured as one with that of its contributions or, if these are raw, of its results.
CallShape with_one_codec(CallShape shape) {
  if (shape.result_codec && codec::id_of(shape.codec) == NCAST_CODEC_RAW) shape.codec = *shape.result_codec;
  shape.result_codec.reset();
  return shape;
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

Costs costs_of(const CallShape& shape, const CostModel& model) {
  if (shape.result_codec) return costs_of(with_one_codec(shape), model);
  Costs costs(candidates().size());
  if (shape.ranks == 1) return costs;
  for (size_t i = 0; i < candidates().size(); ++i) {
    const Candidate& candidate = candidates()[i];
    if (!runs_on(candidate, shape.link)) continue;
    if (candidate.transport == Transport::frames) {
      costs[i].typical =
          model.measured(shape.operation, candidate.name, shape.bytes, shape.ranks, shape.link).value_or(0);
      if (shape.link == Link::network && !model.is_measured(shape.link) && is_predicted(candidate, shape))
        costs[i] = network_cost(shape, candidate.codec, model.network_gbps().value_or(assumed_network_gbps));
      continue;
    }
    if (candidate.transport == Transport::packets && why_no_packets(shape) != nullptr) continue;
    const auto predict = [&](Data data) {
      return model.predict(shape.operation, i, shape.bytes, shape.ranks, shape.link, data).value_or(0) *
             slowdown_of_few_ctas(candidate, shape, model);
    };
    costs[i] = {predict(Data::typical), predict(Data::incompressible)};
  }
  adapt_codecs(shape, &costs);
  return costs;
}

const char* plan_between_processes(Operation operation) { return plan::has_plans(operation) ? "all_pairs" : nullptr; }

const char* plan_between_hosts(Operation operation, bool is_exact) {
  switch (operation) {
    case Operation::all_gather:
    case Operation::broadcast: return "two_level";
    case Operation::reduce_scatter:
    case Operation::all_reduce:
    case Operation::reduce: return is_exact ? "two_level" : plan_between_processes(operation);
    // With another hop as many bytes would cross.
    default: return plan_between_processes(operation);
  }
}

namespace {

Decision decide_built_in(const CallShape& shape, const Policy& policy) {
  if (shape.bytes == 0 && shape.operation != Operation::all_to_all_v) {
    Decision nothing;
    nothing.candidate = "none";
    nothing.transport_reason = nothing.codec_reason = "there are no values";
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

struct PlanTime {
  double microseconds = 0;  // 0: not measured
  ncast_codec codec = NCAST_CODEC_RAW;
};

// The time of the plan with the fastest of its codecs. unmeasured: the codec of a plan that was not measured and states
// none.
PlanTime time_of(const PlanCandidate& plan, const CallShape& shape, const Policy& policy, ncast_codec unmeasured) {
  PlanTime fastest{0, plan.codec.value_or(unmeasured)};
  for (const ncast_codec codec : codecs_by_cost(plan, shape)) {
    const auto measured =
        policy.costs.measured(shape.operation, cost_name_of(plan, codec), shape.bytes, shape.ranks, shape.link);
    if (measured && (fastest.microseconds == 0 || *measured < fastest.microseconds)) fastest = {*measured, codec};
  }
  return fastest;
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
    const double microseconds = time_of(*plan, shape, policy, built_in.codec).microseconds;
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

Decision decide_with_two_codecs(const CallShape& shape, ncast_codec result_codec, const Policy& policy) {
  Decision decision = decide_built_in(with_one_codec(shape), policy);
  if (decision.codec == NCAST_CODEC_RAW) return decision;
  decision.codec = codec::without_flag(shape.codec);
  decision.result_codec = codec::without_flag(result_codec);
  if (shape.has_levels && !codec::is_exact(codec::effective_codec(shape.dtype, result_codec)))
    decision.plan = plan_between_processes(shape.operation);
  return decision;
}

}  // namespace

Decision decide(const CallShape& shape, const Policy& policy) {
  if (shape.result_codec) return decide_with_two_codecs(shape, *shape.result_codec, policy);
  Decision decision = decide_built_in(shape, policy);
  if (policy.plans == nullptr || policy.plans->empty() || shape.bytes == 0 || shape.ranks == 1) return decision;
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

std::vector<Alternative> alternatives_of(const CallShape& shape, const Decision& decision, const Policy& policy) {
  std::vector<Alternative> list;
  if (policy.plans == nullptr || shape.bytes == 0 || shape.ranks == 1) return list;
  const auto is_able = [&](const PlanCandidate& plan) { return why_not(plan, shape) == nullptr; };
  const auto alternative = [&](const PlanCandidate& plan) -> Alternative {
    const double microseconds = time_of(plan, shape, policy, NCAST_CODEC_RAW).microseconds;
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
