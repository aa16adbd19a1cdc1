#include "nccl/policy/cost_prediction.h"

#include "nccl/libraries/backend.h"
#include "nccl/libraries/engine.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

bool EnginePredictor::predict(const CallShape& shape, ncast_codec codec, ncast_prediction* prediction) const {
  const Engine* const narrowcast = engine();
  // A communicator of the host backend has no model, and what there is of GPUs is not for it.
  if (narrowcast == nullptr || (comm_ == nullptr && backend.id != NCAST_BACKEND_CUDA)) return false;
  ncast_status status = NCAST_OK;
  if (comm_ != nullptr) {
    status = narrowcast->ncast_comm_predict(comm_, shape.operation, shape.count, shape.dtype, codec, prediction);
  } else {
    // All that ranks have alike: their settings, but for their CTAs.
    ncast_comm_config config = config_from_settings(*narrowcast);
    config.max_ctas = most_ctas;
    status =
        narrowcast->ncast_predict(shape.operation, shape.count, shape.dtype, codec, shape.ranks, &config, prediction);
  }
  if (!has_windows_ && prediction->nccl_default != 0) prediction->nccl = prediction->nccl_default;
  return status == NCAST_OK;
}

const char* why_not_worth_taking(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_prediction times = {};
  if (!predictor.predict(shape, codec, &times) || times.microseconds == 0)
    return "the cost model does not know this call";
  // A model is of one number of GPUs: what NCCL takes with others is not carried over.
  if (times.nccl == 0) return "the cost model does not know how long NCCL takes";
  return times.microseconds < times.nccl ? nullptr : "NCCL is as fast, by the cost model";
}

std::optional<double> microseconds_saved(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_prediction times = {};
  if (!predictor.predict(shape, codec, &times) || times.microseconds == 0 || times.nccl == 0) return std::nullopt;
  return times.nccl - times.microseconds;
}

}  // namespace narrowcast::nccl
