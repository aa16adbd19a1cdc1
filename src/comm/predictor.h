// The predictors of narrowcast/explain.h.
#pragma once

#include <memory>
#include <string>

#include "narrowcast/explain.h"
#include "select/decider.h"

struct ncast_predictor {
  const std::shared_ptr<narrowcast::select::Decider> decider;
  const std::string costs_warning;
  const bool is_of_communicator;
};
