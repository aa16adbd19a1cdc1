// What narrowcast/explain.h says, for any communicator.
#pragma once

#include "narrowcast/explain.h"
#include "select/choice.h"

namespace narrowcast::select {

// A call as it is asked about.
struct Question {
  ncast_operation operation;
  uint64_t count;
  ncast_dtype dtype;
  ncast_codec codec;
};

// What the ranks know besides.
struct Situation {
  int ranks;
  bool over_host, nvlink;
  uint32_t max_ctas;
  Policy policy;
};

// Errors: INVALID_ARGUMENT.
ncast_status explain(const Question& question, const Situation& situation, ncast_explanation* explanation);
ncast_status predict(const Question& question, const Situation& situation, ncast_prediction* prediction);

}  // namespace narrowcast::select
