// Predicts whether a call is faster on the engine than in NCCL, and by how much, with the engine's cost model.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "narrowcast/explain.h"
#include "nccl/abi/operations.h"
#include "nccl/libraries/engine.h"

namespace narrowcast::nccl {

// The properties of a call that all ranks know.
struct CallShape {
  Operation operation;
  ncast_dtype dtype;
  size_t count;  // of values, as in NCCL's call
  int ranks;
  bool has_windows;  // windows are registered: compare with NCCL's fastest variant instead of its default
  ncast_redop redop = NCAST_SUM;
  int root = 0;
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  // Returns false if the time is unknown. The result is the same on all ranks.
  virtual bool compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const = 0;
};

// Creates the engine's predictor for a communicator that does not exist yet, with the configuration and the plans of
// the settings. max_ctas: 0: as in the settings. name: commName. The engine has the message of an error.
ncast_status create_predictor(const Engine& narrowcast, int ranks, uint32_t max_ctas, std::string_view name,
                              ncast_predictor** predictor);

// As Predictor::compare(), by a predictor of the engine.
bool compare(const ncast_predictor& predictor, const CallShape& shape, ncast_codec codec, ncast_comparison* comparison);

// Uses the engine, which caches its decisions, so the drop-in has no cache of its own.
class EnginePredictor final : public Predictor {
 public:
  // For a communicator of the engine, which runs its calls by the same decisions. May outlive the communicator.
  explicit EnginePredictor(ncast_comm* comm);
  // Before the engine's communicator exists: uses the settings, which the ranks compare. name: commName. between_hosts:
  // the times are unknown until the ranks attach and measure them, which is worth it for long calls.
  EnginePredictor(int ranks, uint32_t max_ctas, std::string_view name, bool between_hosts);

  bool compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const override;

 private:
  struct Destroy {
    void operator()(ncast_predictor* predictor) const;
  };
  std::unique_ptr<ncast_predictor, Destroy> predictor_;  // NULL: all times are unknown
  bool knows_times_ = true;                              // otherwise only which plans are used for all calls
  bool measures_long_calls_ = false;                     // calls of these sizes are a reason to attach
};

// The reason why a call is not faster on the engine, as a string constant; NULL if it is faster, or if a plan is used
// for all such calls.
const char* why_not_faster(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

// The predicted savings. Negative if NCCL is faster; nullopt if the model does not have both times.
std::optional<double> saved_microseconds(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

// The predicted time; nullopt if it is not known.
std::optional<double> predicted_microseconds(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

// The codec of the values on the link, one of those that `codec` allows. nullopt: the engine does not know.
std::optional<ncast_codec> codec_of(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

// The name of the plan that the call runs instead of the built-in way; NULL: none. Valid as long as the predictor.
const char* plan_of(const CallShape& shape, ncast_codec codec, const Predictor& predictor);

}  // namespace narrowcast::nccl
