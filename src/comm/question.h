// What explanations and predictors have in common: the calls that programs ask about, and what decides them.
#pragma once

#include <memory>

#include "narrowcast/explain.h"
#include "select/decider.h"

namespace narrowcast::comm {

// A call that a program asks about.
struct Question {
  ncast_operation operation;
  uint64_t count;
  ncast_dtype dtype;
  ncast_codec codec;
};

// Errors: INVALID_ARGUMENT.
ncast_status shape_of(const char* function, const Question& question, const select::Decider& decider,
                      select::CallShape* shape);

// The decider of a communicator between GPUs with NVLink, all of whose ranks have this configuration (NULL: defaults).
// Errors: INVALID_ARGUMENT.
ncast_status assume_communicator(const char* function, int ranks, const ncast_comm_config* config,
                                 std::shared_ptr<select::Decider>* decider);

}  // namespace narrowcast::comm
