// Code that explanations and predictors share: the description of a call, and the decider of an assumed communicator.
#pragma once

#include <memory>
#include <optional>

#include "narrowcast/plan.h"
#include "select/decider.h"

namespace narrowcast::comm {

// A call to be explained or predicted.
struct Question {
  ncast_operation operation;
  uint64_t count;
  ncast_dtype dtype;
  ncast_codec codec;
  ncast_redop op = NCAST_SUM;
  int root = 0;
  select::Placement placement = select::Placement::unknown;
  std::optional<ncast_codec> result_codec = std::nullopt;
};

// The question of a caller's struct. Errors: INVALID_ARGUMENT, UNSUPPORTED.
ncast_status read_question(const char* function, const ncast_plan_call* call, Question* question);

// Checks a call and converts it to the decider's input. Errors: INVALID_ARGUMENT.
ncast_status shape_of(const char* function, const Question& question, const select::Decider& decider,
                      select::CallShape* shape);

// Makes the decider of a communicator between GPUs, all of whose ranks have this configuration (NULL: the defaults).
// The link is NVLink, or host memory if the options say so. Errors: INVALID_ARGUMENT.
ncast_status assume_communicator(const char* function, int ranks, const ncast_comm_config* config,
                                 std::shared_ptr<select::Decider>* decider);

}  // namespace narrowcast::comm
