#include "nccl/policy/cost_prediction.h"

#include <atomic>

#include "environment/level_shape.h"
#include "nccl/libraries/backend.h"
#include "nccl/libraries/engine.h"
#include "nccl/policy/plans.h"
#include "nccl/report/log.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {
namespace {

// Of calls between hosts. Shorter ones are bound by latency, in which NCCL is better.
constexpr uint64_t least_measured_bytes = 64 << 10;

// Logs the warning once per process. It is a warning only if the user chose the cost model.
void log_costs_warning(const ncast_predictor* predictor) {
  const char* const warning = engine()->ncast_predictor_costs_warning(predictor);
  static std::atomic<bool> logged = false;
  if (warning == nullptr || logged.exchange(true)) return;
  log(settings().cost_model.empty() ? Level::info : Level::warn, "predictions may be wrong: %s", warning);
}

}  // namespace

ncast_status create_predictor(const Engine& narrowcast, int ranks, uint32_t max_ctas, std::string_view name,
                              ncast_predictor** predictor) {
  ncast_comm_config config = config_from_settings(narrowcast);
  if (max_ctas != 0) limit_ctas(max_ctas, &config);
  if (const ncast_status status = narrowcast.ncast_predictor_create(ranks, &config, predictor); status != NCAST_OK)
    return status;
  for (const PlanForCalls& one : plans_for(ranks, name))
    if (narrowcast.ncast_predictor_use_plan(*predictor, one.plan, one.dtype, one.redop, &one.use) != NCAST_OK)
      log_unused(one, narrowcast.ncast_last_error());
  return NCAST_OK;
}

EnginePredictor::EnginePredictor(ncast_comm* comm) {
  ncast_predictor* created = nullptr;
  if (engine()->ncast_comm_predictor(comm, &created) != NCAST_OK) return;
  predictor_.reset(created);
  log_costs_warning(created);
}

EnginePredictor::EnginePredictor(int ranks, uint32_t max_ctas, std::string_view name, bool between_hosts)
    // Times for ranks without a communicator are those of GPUs of one host.
    : knows_times_(backend.id == NCAST_BACKEND_CUDA && !between_hosts), measures_long_calls_(between_hosts) {
  const Engine* const narrowcast = engine();
  if (narrowcast == nullptr) return;
  if (ranks > environment::most_ranks_of_level || (!knows_times_ && plans_for(ranks, name).empty())) return;
  ncast_predictor* created = nullptr;
  if (create_predictor(*narrowcast, ranks, max_ctas, name, &created) != NCAST_OK) {
    log(Level::info, "cannot predict times for a communicator of %d ranks: %s", ranks, narrowcast->ncast_last_error());
    return;
  }
  predictor_.reset(created);
  if (knows_times_) log_costs_warning(created);
}

bool compare(const ncast_predictor& predictor, const CallShape& shape, ncast_codec codec,
             ncast_comparison* comparison) {
  comparison->struct_bytes = sizeof *comparison;
  const ncast_plan_call call = {.struct_bytes = sizeof(ncast_plan_call),
                                .operation = shape.operation,
                                .count = shape.count,
                                .dtype = shape.dtype,
                                .op = shape.redop,
                                .root = shape.root,
                                .codec = codec,
                                .ranks = shape.ranks,
                                .placement = NCAST_PLACEMENT_UNKNOWN,
                                .result_codec = nullptr};
  return engine()->ncast_predictor_compare_call(&predictor, &call, shape.has_windows ? 1 : 0, comparison) == NCAST_OK;
}

bool EnginePredictor::compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const {
  if (predictor_ != nullptr && nccl::compare(*predictor_, shape, codec, comparison) &&
      (knows_times_ || comparison->always != 0))
    return true;
  if (!measures_long_calls_) return false;
  const bool is_long = shape.count * value_bytes(shape.dtype) >= least_measured_bytes;
  *comparison = {.struct_bytes = sizeof *comparison,
                 .faster = is_long ? 1 : 0,
                 .microseconds = 0,
                 .nccl_microseconds = 0,
                 .reason = is_long ? nullptr : "the call is short, and no long call has made the hosts attach yet",
                 .plan = nullptr,
                 .always = 0,
                 .codec = NCAST_CODEC_RAW};
  return true;
}

void EnginePredictor::Destroy::operator()(ncast_predictor* predictor) const {
  engine()->ncast_predictor_destroy(predictor);
}

const char* why_not_faster(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_comparison times = {};
  if (!predictor.compare(shape, codec, &times)) return "the cost model does not know this call";
  return times.faster != 0 || times.always != 0 ? nullptr : times.reason;
}

const char* plan_of(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_comparison found = {};
  return predictor.compare(shape, codec, &found) ? found.plan : nullptr;
}

std::optional<ncast_codec> codec_of(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_comparison found = {};
  return predictor.compare(shape, codec, &found) ? std::optional(found.codec) : std::nullopt;
}

std::optional<double> predicted_microseconds(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_comparison times = {};
  if (!predictor.compare(shape, codec, &times) || times.microseconds == 0) return std::nullopt;
  return times.microseconds;
}

std::optional<double> saved_microseconds(const CallShape& shape, ncast_codec codec, const Predictor& predictor) {
  ncast_comparison times = {};
  if (!predictor.compare(shape, codec, &times) || times.microseconds == 0 || times.nccl_microseconds == 0)
    return std::nullopt;
  return times.nccl_microseconds - times.microseconds;
}

}  // namespace narrowcast::nccl
