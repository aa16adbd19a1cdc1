// Decides which calls run on the engine, and with which codec. A decision depends only on what all ranks know.
#pragma once

#include <optional>
#include <string_view>

#include "nccl/abi/call.h"
#include "nccl/policy/cost_prediction.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

struct Decision {
  bool use_engine;
  ncast_codec codec;
  const char* why_forwarded;                               // a string constant; NULL if use_engine
  std::optional<ncast_codec> result_codec = std::nullopt;  // of the results of an all_reduce; nullopt: the same
  const char* codec_from = nullptr;  // the name of the rule or setting that gives the codec; NULL: none does
};

struct CommunicatorTraits {
  int ranks;
  std::string_view name;     // commName; empty: none
  bool has_windows = false;  // as in CallShape
};

// operation: of the call; a receive may be described as its send.
CallShape shape_of(const Call& call, Operation operation, int ranks, bool has_windows);

// A send and the matching receive get the same decision.
Decision decide(const Settings& settings, const Call& call, const CommunicatorTraits& comm, const Predictor& predictor);

}  // namespace narrowcast::nccl
