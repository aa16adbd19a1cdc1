#include "nccl/policy/cost_prediction.h"

#include "nccl/libraries/backend.h"
#include "nccl/libraries/engine.h"

namespace narrowcast::nccl {

bool EnginePredictor::predict(const CallShape& shape, ncast_codec codec, ncast_prediction* prediction) const {
  const Engine* const narrowcast = engine();
  // The built-in model is of GPUs. It says nothing about the host backend.
  if (narrowcast == nullptr || (state_.comm == nullptr && backend.id != NCAST_BACKEND_CUDA)) return false;
  ncast_status status = NCAST_OK;
  if (state_.comm != nullptr) {
    status = narrowcast->ncast_comm_predict(state_.comm, shape.operation, shape.count, shape.dtype, codec, prediction);
  } else {
    // NARROWCAST_MAX_CTAS may differ between ranks.
    ncast_comm_config config = config_from_settings(*narrowcast);
    config.max_ctas = state_.max_ctas;
    status =
        narrowcast->ncast_predict(shape.operation, shape.count, shape.dtype, codec, shape.ranks, &config, prediction);
  }
  if (!state_.has_windows && prediction->nccl_default != 0) prediction->nccl = prediction->nccl_default;
  return status == NCAST_OK;
}

const char* why_not_faster(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_prediction times = {};
  if (!predictor.predict(shape, codec, &times) || times.microseconds == 0)
    return "the cost model does not know this call";
  // A model has measured one number of GPUs. NCCL's times are not extrapolated to others.
  if (times.nccl == 0) return "the cost model does not know how long NCCL takes";
  return times.microseconds < times.nccl ? nullptr : "NCCL is as fast, by the cost model";
}

std::optional<double> saved_microseconds(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_prediction times = {};
  if (!predictor.predict(shape, codec, &times) || times.microseconds == 0 || times.nccl == 0) return std::nullopt;
  return times.nccl - times.microseconds;
}

}  // namespace narrowcast::nccl
