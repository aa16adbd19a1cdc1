// Whether a call is faster on the engine than in NCCL, and by how much, according to the engine's cost model.
#pragma once

#include <optional>

#include "narrowcast/explain.h"
#include "nccl/abi/operations.h"

namespace narrowcast::nccl {

// What every rank knows of a call.
struct CallShape {
  Operation operation;
  ncast_dtype dtype;
  size_t count;  // of values, as in NCCL's call
  int ranks;
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  // False if the time is not known. The same on all ranks.
  virtual bool compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const = 0;
};

// The state of a communicator that predictions depend on; the same on all ranks.
struct EngineState {
  ncast_comm* comm;   // NULL: not created yet
  bool has_windows;   // NCCL's time is that of its fastest way; otherwise that of its default
  uint32_t max_ctas;  // used while comm is NULL
  bool operator==(const EngineState&) const = default;
};

// Predicts by what the ranks of the engine's communicator have agreed on; before it exists, by the settings, which the
// ranks compare.
class EnginePredictor final : public Predictor {
 public:
  explicit EnginePredictor(const EngineState& state) : state_(state) {}
  bool compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const override;

 private:
  const EngineState state_;
};

// Why a call is not faster on the engine, as a string constant; NULL if it is.
const char* why_not_faster(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

// Negative if NCCL is faster; nullopt if the model does not know both times.
std::optional<double> saved_microseconds(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

}  // namespace narrowcast::nccl
