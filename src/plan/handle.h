// The handles of plan.h.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "narrowcast/plan.h"
#include "plan/ir.h"
#include "status/error.h"

struct ncast_plan {
  narrowcast::plan::Plan plan;
};

struct ncast_text {
  std::string text;
};

namespace narrowcast::plan {

// Gives the text that make() returns to the caller. Errors: INVALID_ARGUMENT if `text` is NULL.
template <typename Make>
ncast_status make_text(const char* function, ncast_text** text, Make make) {
  if (text == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: the pointer to the text is NULL", function);
  return guarded(function, [&] {
    *text = new ncast_text{make()};
    return NCAST_OK;
  });
}

// Error: INVALID_ARGUMENT if `plan` is NULL.
inline ncast_status check_plan(const char* function, const ncast_plan* plan) {
  return plan != nullptr ? NCAST_OK : fail(NCAST_INVALID_ARGUMENT, "%s: plan is NULL", function);
}

}  // namespace narrowcast::plan
