// Builders whose rows are encoded on a GPU (store_cuda.h).
#include <memory>

#include "narrowcast/store_cuda.h"
#include "status/error.h"
#include "store/cuda/build/piece_pipeline.h"
#include "store/handle.h"

using namespace narrowcast;

extern "C" ncast_status ncast_store_builder_set_device(ncast_store_builder* builder, int device) {
  constexpr const char* function = "ncast_store_builder_set_device";
  if (builder == nullptr) return null_argument(function, "builder");
  if (device < 0) return fail(NCAST_INVALID_ARGUMENT, "%s: device is %d, not the number of a GPU", function, device);
  return guarded(function, [&] {
    std::unique_ptr<store::PieceEncoder> encoder;
    if (const ncast_status status = store::cuda::PiecePipeline::create(device, &encoder); status != NCAST_OK)
      return status;
    return builder->builder.encode_with(std::move(encoder));
  });
}
