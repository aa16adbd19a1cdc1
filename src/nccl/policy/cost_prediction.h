// Whether a call is faster here than in NCCL, and by how much: the one place that answers, by the engine's cost model.
#pragma once

#include <optional>

#include "narrowcast/explain.h"
#include "nccl/abi/operations.h"

namespace narrowcast::nccl {

// What every rank knows of a call.
struct CallShape {
  Operation operation;
  ncast_dtype dtype;
  size_t count;  // of values, as NCCL has it
  int ranks;
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  // False where nothing can be said. The same on all ranks.
  virtual bool predict(const CallShape& shape, ncast_codec codec, ncast_prediction* prediction) const = 0;
};

// By what the ranks of `comm` agreed on; before they have one (NULL), by the settings, which they compare.
// NCCL's time is that of its default, but for communicators that have windows.
class EnginePredictor final : public Predictor {
 public:
  EnginePredictor(ncast_comm* comm, bool has_windows) : comm_(comm), has_windows_(has_windows) {}
  bool predict(const CallShape& shape, ncast_codec codec, ncast_prediction* prediction) const override;

 private:
  ncast_comm* comm_;
  bool has_windows_;
};

// NULL: it is. Else why not, as a constant sentence.
const char* why_not_worth_taking(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

// Below zero where NCCL is faster; nothing where the model does not know both times.
std::optional<double> microseconds_saved(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

}  // namespace narrowcast::nccl
