// How the checks of structure.h report their first finding.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

// Ends a check with its first finding.
class Refuted : public std::exception {
 public:
  explicit Refuted(Finding found) : finding(std::move(found)) {}
  Finding finding;
};

[[noreturn]] inline void refute(Property property, const Where& where, std::string message) {
  throw Refuted({property, where, std::move(message), {}});
}

// The finding of a check, or none.
template <typename Check>
Finding first_finding(Check check) {
  try {
    check.run();
    return {};
  } catch (Refuted& refuted) {
    return std::move(refuted.finding);
  }
}

}  // namespace narrowcast::plan::verify
