// For commands of narrowcast: how the drop-in would run a call, and what a settings file means to it.
#include <algorithm>
#include <cstring>

#include "nccl/entry/guarded.h"
#include "nccl/libraries/engine.h"
#include "nccl/policy/check.h"
#include "nccl/policy/cost_prediction.h"
#include "nccl/policy/decision.h"

extern "C" {
// Creates the predictor of a communicator of GPUs by the settings. max_ctas: 0: as in the settings. communicator:
// commName. Returns an ncast_status, whose message the engine has; the engine also destroys the predictor.
__attribute__((visibility("default"))) int narrowcast_nccl_predictor(int ranks, uint32_t max_ctas,
                                                                     const char* communicator,
                                                                     ncast_predictor** predictor);

// Decides by the settings, and by a predictor that the function above has created, how a call of such a communicator
// runs. codec: what the call allows; result_codec: the same for the results of an all_reduce. codec_from: the rule or
// setting that gives them; NULL: none does. why_forwarded: why NCCL runs the call; NULL: the engine does.
__attribute__((visibility("default"))) void narrowcast_nccl_decide(const ncast_predictor* predictor, int ranks,
                                                                   const char* communicator,
                                                                   const ncast_plan_call* call, ncast_codec* codec,
                                                                   ncast_codec* result_codec, const char** codec_from,
                                                                   const char** why_forwarded);

// Writes check_policy(path), with as much of it and of a terminating NUL as fit. Returns the bytes of both; 0: failed,
// which is logged.
__attribute__((visibility("default"))) size_t narrowcast_nccl_check_policy(const char* path, char* text,
                                                                           size_t capacity);
}

using namespace narrowcast::nccl;

int narrowcast_nccl_predictor(int ranks, uint32_t max_ctas, const char* communicator, ncast_predictor** predictor) {
  *predictor = nullptr;
  ncast_status status = NCAST_INTERNAL;
  guarded([&] {
    if (const Engine* const narrowcast = engine())
      status = create_predictor(*narrowcast, ranks, max_ctas, communicator, predictor);
    return success;
  });
  return status;
}

void narrowcast_nccl_decide(const ncast_predictor* predictor, int ranks, const char* communicator,
                            const ncast_plan_call* call, ncast_codec* codec, ncast_codec* result_codec,
                            const char** codec_from, const char** why_forwarded) {
  struct Given final : Predictor {
    const ncast_predictor& predictor;
    explicit Given(const ncast_predictor& given) : predictor(given) {}
    bool compare(const CallShape& shape, ncast_codec allowed, ncast_comparison* comparison) const override {
      return narrowcast::nccl::compare(predictor, shape, allowed, comparison);
    }
  };
  guarded([&] {
    const Call made = {.function = Function::AllReduce,
                       .operation = call->operation,
                       .count = call->count,
                       .dtype = call->dtype,
                       .redop = call->op,
                       .peer = call->root};
    const Decision decision = decide(settings(), made, {.ranks = ranks, .name = communicator}, Given(*predictor));
    *codec = decision.codec;
    *result_codec = decision.result_codec.value_or(decision.codec);
    *codec_from = decision.codec_from;
    *why_forwarded = decision.why_forwarded;
    return success;
  });
}

size_t narrowcast_nccl_check_policy(const char* path, char* text, size_t capacity) {
  size_t bytes = 0;
  guarded([&] {
    const std::string policy = check_policy(path);
    bytes = policy.size() + 1;
    std::memcpy(text, policy.c_str(), std::min(bytes, capacity));
    return success;
  });
  return bytes;
}
