// The functions of narrowcast/explain.h that are about a communicator.
#include "executor/cuda/with_communicator.h"
#include "select/explain.h"

using namespace narrowcast::executor::cuda;

extern "C" {

ncast_status ncast_comm_explain(ncast_comm* comm, ncast_operation operation, uint64_t count, ncast_dtype dtype,
                                ncast_codec codec, ncast_explanation* explanation) {
  return with_communicator("ncast_comm_explain", comm, [&](const Communicator& communicator) {
    return explain({operation, count, dtype, codec}, communicator.situation(), explanation);
  });
}

ncast_status ncast_comm_predict(ncast_comm* comm, ncast_operation operation, uint64_t count, ncast_dtype dtype,
                                ncast_codec codec, ncast_prediction* prediction) {
  return with_communicator("ncast_comm_predict", comm, [&](const Communicator& communicator) {
    return predict({operation, count, dtype, codec}, communicator.situation(), prediction);
  });
}

}  // extern "C"
