// The CUDA backend: ranks are GPUs of one host or several. A process or thread may own one rank or several.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>

#include "bootstrap/unique_id.h"
#include "executor/backend.h"
#include "executor/cuda/communicator.h"
#include "executor/cuda/local_work.h"
#include "executor/launch_apart.h"
#include "status/cuda_driver.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {
namespace {

ncast_status check_config(int ranks, const ncast_comm_config& config) {
  Options options;
  if (ncast_status status = Options::of(config, &options)) return status;
  constexpr int most_ranks = channel::max_gpu_ranks;
  const char* const why = options.levels == environment::Levels::one ? ", because NARROWCAST_LEVELS is 1" : "";
  if (ranks > most_ranks) return fail(NCAST_INVALID_ARGUMENT, "ranks is %d, not 1 to %d%s", ranks, most_ranks, why);
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess)
    return fail(NCAST_UNSUPPORTED, "no usable GPU: %s", cuda_error_text(error).c_str());
  if (config.device < devices) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT, "device is %d, but this process sees GPUs 0 to %d", config.device, devices - 1);
}

ncast_status create(const ncast_unique_id& id, std::unique_ptr<bootstrap::Rendezvous> rendezvous, int, int,
                    const ncast_comm_config& config, ncast_comm** comm) {
  constexpr const char* function = "ncast_comm_create";
  if (ncast_status status =
          Communicator::create(std::move(rendezvous), bootstrap::content_of(id).world, config, comm)) {
    const std::string message = ncast_last_error();
    return fail(status, "%s: %s", function, message.c_str());
  }
  return NCAST_OK;
}

ncast_status launch(const std::vector<Call>& calls) {
  return launch_apart(calls, communicators_of(calls), &Call::comm, [](ncast_comm* comm, const auto& those) {
    return static_cast<Communicator*>(comm)->launch(those);
  });
}

const bool added = (add_backend(NCAST_BACKEND_CUDA, {check_config, create, launch, make_local_work, nullptr,
                                                     [](const bootstrap::UniqueIdContent&) { return true; }}),
                    true);

}  // namespace
}  // namespace narrowcast::executor::cuda
