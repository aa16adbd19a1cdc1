#include "select/codec_choice.h"

#include <algorithm>
#include <vector>

#include "codec/codec.h"
#include "select/allowed_codecs.h"

namespace narrowcast::select {
namespace {

// A codec that is not forced loses at most this share of the time with values that do not shrink.
constexpr double most_lost = 0.03;

// For links without measurements: from this size on, the link to host memory is slower than any codec.
constexpr uint64_t unmeasured_coded_bytes = 256 << 10;

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

}  // namespace

CodecChoice choose_codec(const CallShape& shape, Transport coded_transport, size_t raw, const Costs& costs,
                         const CostModel& model) {
  CodecChoice choice = fastest_codec(shape, coded_transport, raw, costs);
  const size_t candidate = index_of(coded_transport, choice.codec);
  const bool is_measured = model.predict(shape.operation, candidate, shape.bytes, shape.ranks, shape.link).has_value();
  choice.reason = reason_of(shape, choice.codec, is_measured, choice.reason);
  return choice;
}

CallShape with_long_pieces(CallShape shape) {
  shape.operation = Operation::all_to_all;
  shape.bytes = 256 << 20;
  return shape;
}

}  // namespace narrowcast::select
