// The predictors of narrowcast/explain.h.
#include <memory>
#include <string>

#include "comm/question.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "status/error.h"
#include "status/sized_struct.h"

struct ncast_predictor {
  const std::shared_ptr<narrowcast::select::Decider> decider;
  const std::string costs_warning;
};

using namespace narrowcast;
using select::Decider;

namespace {

ncast_predictor* make(const std::shared_ptr<Decider>& decider) {
  // On the host backend no decision depends on costs.
  const bool uses_costs = decider->traits().link != select::Link::shared_memory;
  return new ncast_predictor{decider, uses_costs ? describe_mismatch(decider->costs()) : ""};
}

}  // namespace

extern "C" {

ncast_status ncast_predictor_create(int ranks, const ncast_comm_config* config, ncast_predictor** predictor) {
  constexpr const char* function = "ncast_predictor_create";
  return guarded(function, [&] {
    if (predictor == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: predictor is NULL", function);
    *predictor = nullptr;
    std::shared_ptr<Decider> decider;
    if (ncast_status status = comm::assume_communicator(function, ranks, config, &decider)) return status;
    *predictor = make(decider);
    return NCAST_OK;
  });
}

ncast_status ncast_comm_predictor(ncast_comm* comm, ncast_predictor** predictor) {
  constexpr const char* function = "ncast_comm_predictor";
  return guarded(function, [&] {
    if (predictor == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: predictor is NULL", function);
    *predictor = nullptr;
    executor::CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    *predictor = make(comm->decider());
    return NCAST_OK;
  });
}

ncast_status ncast_predictor_compare(const ncast_predictor* predictor, ncast_operation operation, uint64_t count,
                                     ncast_dtype dtype, ncast_codec codec, int with_windows,
                                     ncast_comparison* comparison) {
  constexpr const char* function = "ncast_predictor_compare";
  return guarded(function, [&] {
    if (predictor == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: predictor is NULL", function);
    Decider& decider = *predictor->decider;
    select::CallShape shape{};
    if (ncast_status status = comm::shape_of(function, {operation, count, dtype, codec}, decider, &shape))
      return status;
    const select::Comparison found =
        select::compare(decider.decide(shape), with_windows != 0 ? "nccl" : "nccl:default");
    return fill_struct(function, "comparison",
                       ncast_comparison{.struct_bytes = sizeof(ncast_comparison),
                                        .faster = found.reason == nullptr,
                                        .microseconds = found.microseconds,
                                        .nccl_microseconds = found.nccl_microseconds,
                                        .reason = found.reason},
                       comparison);
  });
}

const char* ncast_predictor_costs_warning(const ncast_predictor* predictor) {
  return predictor == nullptr || predictor->costs_warning.empty() ? nullptr : predictor->costs_warning.c_str();
}

void ncast_predictor_destroy(ncast_predictor* predictor) { delete predictor; }

}  // extern "C"
