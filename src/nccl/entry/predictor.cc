// For `narrowcast explain`, which shows how the drop-in would run a call with the settings of its process.
#include "nccl/entry/guarded.h"
#include "nccl/libraries/engine.h"
#include "nccl/policy/cost_prediction.h"

extern "C" {
// Creates the predictor of a communicator of GPUs by the settings. max_ctas: 0: as in the settings. communicator:
// commName. Returns an ncast_status, whose message the engine has; the engine also destroys the predictor.
__attribute__((visibility("default"))) int narrowcast_nccl_predictor(int ranks, uint32_t max_ctas,
                                                                     const char* communicator,
                                                                     ncast_predictor** predictor);
}

using namespace narrowcast::nccl;

int narrowcast_nccl_predictor(int ranks, uint32_t max_ctas, const char* communicator, ncast_predictor** predictor) {
  *predictor = nullptr;
  ncast_status status = NCAST_INTERNAL;
  guarded([&] {
    if (const Engine* const narrowcast = engine())
      status = create_predictor(*narrowcast, ranks, max_ctas, communicator, predictor);
    return success;
  });
  return status;
}
