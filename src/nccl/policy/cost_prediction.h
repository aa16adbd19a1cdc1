// Whether a call is faster on the engine than in NCCL, and by how much, according to the engine's cost model.
#pragma once

#include <memory>
#include <optional>

#include "narrowcast/explain.h"
#include "nccl/abi/operations.h"

namespace narrowcast::nccl {

// What all ranks know about a call.
struct CallShape {
  Operation operation;
  ncast_dtype dtype;
  size_t count;  // of values, as in NCCL's call
  int ranks;
  bool has_windows;  // windows are registered, so NCCL may use its fastest way; otherwise its default
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  // False if the time is not known. The same on all ranks.
  virtual bool compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const = 0;
};

// Asks the engine. The engine caches its decisions, so the drop-in does not.
class EnginePredictor final : public Predictor {
 public:
  // For a communicator of the engine, whose calls run by the same decisions. May outlive it.
  explicit EnginePredictor(ncast_comm* comm);
  // For ranks that have no such communicator yet: by their settings, which they compare.
  EnginePredictor(int ranks, uint32_t max_ctas);

  bool compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const override;

 private:
  struct Destroy {
    void operator()(ncast_predictor* predictor) const;
  };
  std::unique_ptr<ncast_predictor, Destroy> predictor_;  // NULL: no time is known
};

// Why a call is not faster on the engine, as a string constant; NULL if it is.
const char* why_not_faster(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

// Negative if NCCL is faster; nullopt if the model does not know both times.
std::optional<double> saved_microseconds(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

}  // namespace narrowcast::nccl
