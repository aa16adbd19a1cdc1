#include "select/frames.h"

#include "codec/codec.h"
#include "plan/steps.h"
#include "select/allowed_codecs.h"
#include "select/call_costs.h"
#include "select/codec_choice.h"

namespace narrowcast::select {

const char* plan_between_processes(Operation operation) { return plan::has_plans(operation) ? "all_pairs" : nullptr; }

// Between hosts, values that every rank receives or combines cross once. Lossy codecs combine values of ranks, not of
// hosts.
const char* plan_of_frames(const CallShape& shape, bool is_exact) {
  if (!shape.has_levels) return plan_between_processes(shape.operation);
  switch (shape.operation) {
    case Operation::all_gather:
    case Operation::broadcast: return "two_level";
    case Operation::reduce_scatter:
    case Operation::all_reduce:
    case Operation::reduce: return is_exact ? "two_level" : plan_between_processes(shape.operation);
    // With another hop as many bytes would cross.
    default: return plan_between_processes(shape.operation);
  }
}

Decision decide_frames(const CallShape& shape, const CostModel& model) {
  Decision decision;
  const Costs costs = costs_of(shape, model);
  CodecChoice choice =
      choose_codec(shape, Transport::frames, index_of(Transport::frames, NCAST_CODEC_RAW), costs, model);
  const AllowedCodecs allowed = allowed_codecs(shape);
  if (shape.link == Link::network && shape.operation == Operation::all_to_all_v && !allowed.forced &&
      !allowed.codecs.empty()) {
    // The ranks do not know each other's counts. So all of them use the codec that suits long pieces.
    choice = {decide_frames(with_long_pieces(shape), model).codec, "it suits long pieces"};
  }
  decision.codec = choice.codec;
  decision.codec_reason = choice.reason;
  decision.plan = plan_of_frames(shape, codec::is_exact(codec::effective_codec(shape.dtype, decision.codec)));
  const size_t candidate = index_of(Transport::frames, decision.codec);
  decision.candidate = candidates()[candidate].name;
  decision.predicted = costs[candidate];
  decision.transport_reason = shape.link == Link::network ? "the ranks are processes on several hosts"
                                                          : "the ranks are processes that share memory";
  return decision;
}

}  // namespace narrowcast::select
