// An oracle for the verifier: explores every interleaving of the parts of steps of tiny plans, without vector clocks.
//
// A step begins, posts its messages and ends; a copy engine begins later. A read is in progress until the messages are
// posted, and a write until its actor next releases it (a signal, a message, a barrier, the end of the call). Two
// accesses to a value in progress at the same time, one of them a write, are a race. Plans with independent threads
// have two threads in each group. Has no loops, and does not split messages.
#pragma once

#include <cstddef>
#include <string>

#include "plan/ir.h"

namespace narrowcast::plan::verify::testing {

enum class Outcome { correct, incorrect, too_large };

struct Exploration {
  Outcome outcome = Outcome::correct;
  std::string fault;  // of an incorrect plan
  size_t states = 0;
};

// Explores `calls` successive calls, in place and out of place as the plan permits, and computes results in several
// random orders.
Exploration explore(const Plan& plan, int calls = 2, size_t max_states = 200'000);

}  // namespace narrowcast::plan::verify::testing
