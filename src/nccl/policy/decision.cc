#include "nccl/policy/decision.h"

#include <algorithm>

#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

bool matches(const Rule& rule, const CallShape& shape, uint64_t bytes, std::string_view name) {
  return rule.operations[shape.operation] && rule.dtypes[shape.dtype] &&
         (!reduces(shape.operation) || rule.redops[shape.redop]) && bytes >= rule.min_bytes &&
         bytes <= rule.max_bytes && rule.suit(shape.ranks, name);
}

// Whether a codec that no rule gives a call may be used for it.
bool may_use(ncast_codec codec, const CallShape& shape, uint64_t bytes) {
  return is_exact(codec) || (encoded_dtypes(codec)[shape.dtype] && bytes >= least_lossy_bytes &&
                             (!reduces(shape.operation) || lossy_redops[shape.redop]));
}

// The reason why a call is forwarded regardless of `take`; NULL if it may run on the engine.
const char* why_never(const Settings& settings, const CallShape& shape, const Call& call) {
  const bool off = is_point_to_point(shape.operation) ? settings.off[NCAST_OP_SEND] || settings.off[NCAST_OP_RECV]
                                                      : settings.off[shape.operation];
  if (off) return "the operation is switched off";
  if (value_bytes(call.dtype) == 0 || call.redop < 0) return "an argument is out of range";
  if (call.config != nullptr) return "the call has settings of its own";
  if (reduces(shape.operation) && call.redop >= first_user_reduction && !call.factor) return "a user-defined reduction";
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
  const uint64_t bytes = piece_bytes(call);
  const auto found =
      std::ranges::find_if(settings.rules, [&](const Rule& one) { return matches(one, shape, bytes, comm.name); });
  const Rule* const rule = found != settings.rules.end() ? &*found : nullptr;
  const auto if_usable = [&](std::optional<ncast_codec> one) {
    return one && may_use(*one, shape, bytes) ? one : std::nullopt;
  };
  // By precedence: the environment, the first rule that matches, the file's own keys.
  std::optional<ncast_codec> codec = if_usable(settings.codec[operation]);
  const char* codec_from = "NARROWCAST_CODEC";
  std::optional<TakeMode> take = settings.take;
  std::optional<ncast_codec> result_codec;
  if (!codec && rule != nullptr) {
    codec = rule->codec;
    if (shape.operation == NCAST_OP_ALL_REDUCE) result_codec = rule->result_codec;
    codec_from = rule->name.c_str();
  }
  if (!take && rule != nullptr) take = rule->take;
  if (!codec) {
    codec = if_usable(settings.fallback_codec[operation]);
    codec_from = "codec of the file";
  }
  if (!take) take = settings.fallback_take;
  const ncast_codec chosen = codec.value_or(NCAST_CODEC_AUTO);
  const char* why_forwarded = nullptr;
  if (take == TakeMode::never)
    why_forwarded = "a setting says never";
  else if (take != TakeMode::always)
    why_forwarded = why_not_faster(shape, lossy_codec(chosen, result_codec), predictor);
  return {why_forwarded == nullptr, chosen, why_forwarded, result_codec, codec ? codec_from : nullptr};
}

}  // namespace narrowcast::nccl
