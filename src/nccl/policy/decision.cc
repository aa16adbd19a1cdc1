#include "nccl/policy/decision.h"

namespace narrowcast::nccl {
namespace {

bool matches(const Rule& rule, const CallShape& shape, uint64_t bytes, std::string_view name) {
  return rule.suit(shape.ranks, name) && (!rule.operation || *rule.operation == shape.operation) &&
         (!rule.dtype || *rule.dtype == shape.dtype) && bytes >= rule.min_bytes && bytes <= rule.max_bytes;
}

// The reason why a call is forwarded regardless of `take`; NULL if it may run on the engine.
const char* why_never(const Settings& settings, const CallShape& shape, const Call& call) {
  const bool off = is_point_to_point(shape.operation) ? settings.off[NCAST_OP_SEND] || settings.off[NCAST_OP_RECV]
                                                      : settings.off[shape.operation];
  if (off) return "the operation is switched off";
  if (call.config != nullptr) return "the call has settings of its own";
  if (reduces(shape.operation) && call.redop >= first_user_reduction) return "a user-defined reduction";
  if (shape.count == 0) return "there is nothing to move";
  return nullptr;
}

}  // namespace

CallShape shape_of(const Call& call, Operation operation, int ranks, bool has_windows) {
  CallShape shape{operation, static_cast<ncast_dtype>(call.dtype), call.count, ranks, has_windows};
  if (reduces(operation) && call.redop < first_user_reduction) shape.redop = static_cast<ncast_redop>(call.redop);
  if (has_root(operation)) shape.root = call.peer;
  return shape;
}

Decision decide(const Settings& settings, const Call& call, const CommunicatorTraits& comm,
                const Predictor& predictor) {
  const Operation operation = call.operation == NCAST_OP_RECV ? NCAST_OP_SEND : call.operation;
  const CallShape shape = shape_of(call, operation, comm.ranks, comm.has_windows);
  if (const char* const why = why_never(settings, shape, call)) return {false, NCAST_CODEC_RAW, why};
  // By precedence: the environment, the first rule that matches, the file's own keys.
  std::optional<ncast_codec> codec = settings.codec[operation];
  std::optional<TakeMode> take = settings.take;
  for (const Rule& rule : settings.rules) {
    if (!matches(rule, shape, piece_bytes(call), comm.name)) continue;
    if (!codec) codec = rule.codec;
    if (!take) take = rule.take;
    break;
  }
  if (!codec) codec = settings.fallback_codec[operation];
  if (!take) take = settings.fallback_take;
  const ncast_codec chosen = codec.value_or(NCAST_CODEC_AUTO);
  const char* why_forwarded = nullptr;
  if (take == TakeMode::never)
    why_forwarded = "a setting says never";
  else if (take != TakeMode::always)
    why_forwarded = why_not_faster(shape, chosen, predictor);
  return {why_forwarded == nullptr, chosen, why_forwarded};
}

}  // namespace narrowcast::nccl
