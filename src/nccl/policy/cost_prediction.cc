#include "nccl/policy/cost_prediction.h"

#include "nccl/libraries/backend.h"
#include "nccl/libraries/engine.h"

namespace narrowcast::nccl {

bool EnginePredictor::compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const {
  const Engine* const narrowcast = engine();
  // The built-in model is of GPUs. It says nothing about the host backend.
  if (narrowcast == nullptr || (state_.comm == nullptr && backend.id != NCAST_BACKEND_CUDA)) return false;
  comparison->struct_bytes = sizeof *comparison;
  if (state_.comm != nullptr)
    return narrowcast->ncast_comm_compare(state_.comm, shape.operation, shape.count, shape.dtype, codec,
                                          state_.has_windows, comparison) == NCAST_OK;
  // NARROWCAST_MAX_CTAS may differ between ranks.
  ncast_comm_config config = config_from_settings(*narrowcast);
  config.max_ctas = state_.max_ctas;
  return narrowcast->ncast_compare(shape.operation, shape.count, shape.dtype, codec, shape.ranks, &config,
                                   state_.has_windows, comparison) == NCAST_OK;
}

const char* why_not_faster(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_comparison times = {};
  if (!predictor.compare(shape, codec, &times)) return "the cost model does not know this call";
  return times.faster != 0 ? nullptr : times.reason;
}

std::optional<double> saved_microseconds(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_comparison times = {};
  if (!predictor.compare(shape, codec, &times) || times.microseconds == 0 || times.nccl_microseconds == 0)
    return std::nullopt;
  return times.nccl_microseconds - times.microseconds;
}

}  // namespace narrowcast::nccl
