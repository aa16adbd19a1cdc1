// Plans on GPUs: compiles a plan and loads its kernels on a communicator.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "channel/peer/failure.h"
#include "channel/peer/zeroed_memory.h"
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/generated/cubin_cache.h"
#include "executor/cuda/generated/generated_plan.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {

namespace {

// A longer call runs as several launches, each for some blocks of every chunk.
constexpr uint64_t most_scratch_bytes = uint64_t{64} << 20;

ncast_status failed(const char* what, cudaError_t error) { return channel::cuda_failure(what, error); }

}  // namespace

GeneratedPlan::~GeneratedPlan() {
  const device::DeviceGuard device_guard(device_);
  if (own_ != nullptr) cudaFree(own_);
  for (std::shared_ptr<LoadedKernels>& kernels : kernels_) kernels.reset();
}

ncast_status GeneratedPlan::release() {
  const device::DeviceGuard device_guard(device_);
  if (const cudaError_t error = cudaDeviceSynchronize()) return failed("waiting for the plan's calls", error);
  return shared_ == nullptr ? NCAST_OK : comm_.free_shared(std::exchange(shared_, nullptr));
}

ncast_status GeneratedPlan::load() {
  const device::DeviceGuard device_guard(device_);
  lay_out();
  ncast_status status = allocate();
  if (status == NCAST_OK) {
    const std::lock_guard lock(comm_.sharing_);
    status = comm_.rendezvous_->barrier();
  }
  return status == NCAST_OK ? status : comm_.set_last_error(status);
}

ncast_status GeneratedPlan::load_kernels() {
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; i < kernels_.size() && error == cudaSuccess; ++i)
    if (!compiled_.cubins[i].empty()) error = LoadedKernels::load(compiled_.cubins[i], &kernels_[i]);
  if (compiled_.built_in != nullptr) {
    blocks_ = compiled_.built_in->function;  // has been loaded with the communicator
  } else {
    if (error == cudaSuccess) error = kernels_[0]->find(block_kernel, &blocks_);
    if (error == cudaSuccess) error = load_block_kernel(blocks_);
  }
  const auto find = [&](CompiledKernel number, const char* name, const void** kernel) {
    const std::shared_ptr<LoadedKernels>& loaded = kernels_[static_cast<size_t>(number)];
    if (error == cudaSuccess && loaded != nullptr) error = loaded->find(name, kernel);
  };
  find(CompiledKernel::packets, packet_kernel, &straight_.packets);
  find(CompiledKernel::lines, line_kernel, &straight_.lines);
  find(CompiledKernel::packets_in_phases, packet_kernel, &in_phases_.packets);
  find(CompiledKernel::lines_in_phases, line_kernel, &in_phases_.lines);
  return error == cudaSuccess ? NCAST_OK : failed("loading the kernels of a plan", error);
}

void GeneratedPlan::lay_out() {
  const Program& program = this->program();
  std::vector<uint32_t> signals(program.ranks.size()), sent(program.ranks.size()), waited(program.ranks.size());
  for (const Semaphore& semaphore : program.semaphores) {
    const auto words = static_cast<uint32_t>(semaphore.signal_groups.size());
    signals[static_cast<size_t>(semaphore.to)] += words;
    sent[static_cast<size_t>(semaphore.from)] += words;
    if (semaphore.is_waited_for) ++waited[static_cast<size_t>(semaphore.to)];
  }
  uint32_t points = 0;
  for (const RankProgram& rank : program.ranks) {
    points = std::max(points, rank.points);
    scratch_chunks_ = std::max(scratch_chunks_, rank.scratch_chunks);
  }
  if (compiled_.blocks.pieces) return;
  layout_.warps = most_warps(program, compiled_.blocks, comm_.max_ctas(program.codec), comm_.layout_.rings());
  layout_.signals = std::ranges::max(signals);
  layout_.sent_signals = std::ranges::max(sent);
  layout_.waited = std::ranges::max(waited);
  layout_.points = points;
  blocks_of_launch_ = UINT32_MAX / 4;
  if (scratch_chunks_ != 0) {
    const uint64_t copies = uint64_t{program.scratch_copies} * scratch_chunks_ * program.block_bytes;
    blocks_of_launch_ = static_cast<uint32_t>(std::max<uint64_t>(most_scratch_bytes / copies, 1));
    layout_.scratch_bytes = uint64_t{scratch_chunks_} * blocks_of_launch_ * program.block_bytes;
    layout_.scratch_copies = program.scratch_copies;
  }
  if (program.has_packets) {
    layout_.packet_chunks = scratch_chunks_;
    layout_.packet_blocks = blocks_of_launch_;
  }
}

ncast_status GeneratedPlan::allocate() {
  const bool shares = program().accesses_peers;
  const uint64_t own_bytes = layout_.own_bytes() + (shares ? 0 : layout_.scratch_copies * layout_.scratch_bytes);
  if (const cudaError_t error = channel::allocate_zeroed(&own_, own_bytes))
    return failed("allocating memory for a plan", error);
  if (!shares) return NCAST_OK;
  if (ncast_status status = comm_.allocate_shared(layout_.shared_bytes(), &shared_)) return status;
  for (int peer = 0; peer < comm_.ranks(); ++peer)
    if (ncast_status status = comm_.shared_address(shared_, peer, &shared_of_ranks_[peer])) return status;
  return NCAST_OK;
}

ncast_status Communicator::prepare_plan(const plan::Plan& plan, const plan::verify::Report& /*proof*/,
                                        ncast_dtype dtype, ncast_redop op, std::unique_ptr<LoadedPlan>* prepared) {
  const device::DeviceGuard device_guard(device_);
  int major = 0, minor = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device_);
  if (error != cudaSuccess) return failed("querying the GPU", error);
  const Target target{.dtype = dtype,
                      .op = op,
                      .architecture = major * 10 + minor,
                      .max_slots = layout_.slots(),
                      .packets = !over_host(),
                      .lines = link() == Link::nvlink,
                      .shared_bytes = agreement_.shared_bytes};
  std::shared_ptr<const CompiledPlan> compiled;
  if (ncast_status status = compile_shared(plan, target, CubinCache::default_folder(), &compiled)) return status;
  if (compiled->program.accesses_peers) {
    if (ncast_status status = check_one_host("a plan can only send messages")) return status;
  }
  if (!compiled->blocks.pieces &&
      most_warps(compiled->program, compiled->blocks, max_ctas(compiled->program.codec), layout_.rings()) == 0)
    return fail(NCAST_UNSUPPORTED, "the plan has %u groups, too many for the %u CTAs of %u warps of a kernel",
                compiled->program.groups(), max_ctas(compiled->program.codec), compiled->blocks.workers);
  auto loaded = std::make_unique<GeneratedPlan>(*this, std::move(compiled));
  // Before the ranks agree: the driver loads one kernel after another, so the first rank does it while the others
  // prepare the plan.
  if (ncast_status status = loaded->load_kernels()) return status;
  *prepared = std::move(loaded);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda
