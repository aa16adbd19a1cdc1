// A plan that is loaded on a communicator of the CUDA backend.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <utility>

#include "executor/cuda/communicator.h"
#include "executor/cuda/generated/compile.h"
#include "executor/cuda/generated/loaded_kernels.h"
#include "executor/cuda/generated/plan_call.h"
#include "executor/cuda/generated/shape.h"

namespace narrowcast::executor::cuda {

using namespace generated;

class GeneratedPlan final : public LoadedPlan {
 public:
  GeneratedPlan(Communicator& comm, std::shared_ptr<const CompiledPlan> compiled)
      : comm_(comm), shared_compiled_(std::move(compiled)), compiled_(*shared_compiled_), device_(comm.device_) {}
  ~GeneratedPlan() override;

  // Loads the kernels on this GPU; load() does the rest, together with the other ranks.
  ncast_status load_kernels();
  ncast_status load() override;
  ncast_status run(const Call& call) override;
  ncast_status release() override;
  // Launches and counts a call whose stream has been entered. Its buffers are suitable.
  cudaError_t launch(const Call& call);

 private:
  const Program& program() const { return compiled_.program; }
  const RankProgram& rank_program() const { return program().ranks[static_cast<size_t>(comm_.rank())]; }
  void lay_out();
  ncast_status allocate();
  uint64_t bytes_to_peers(uint64_t piece_bytes, uint64_t chunk_bytes) const;
  ncast_status check_buffers(const Call& call, uint64_t piece_bytes) const;
  uint32_t mark_of(uint32_t mark) const;
  PlanPacketShape packet_shape(const Call& call, uint64_t chunk_bytes, select::PacketForm* form) const;
  cudaError_t launch_packets(const Call& call, const PlanPacketShape& shape, select::PacketForm form,
                             uint64_t piece_bytes, uint64_t chunk_bytes) const;
  cudaError_t launch_blocks(const Call& call, uint64_t piece_bytes, uint64_t chunk_bytes);
  cudaError_t launch_pieces(const Call& call, uint64_t piece_bytes, uint64_t chunk_bytes);
  void set_marks(const Call& call, channel::AnnouncedCall* announced) const;

  Communicator& comm_;
  const std::shared_ptr<const CompiledPlan> shared_compiled_;
  const CompiledPlan& compiled_;
  const int device_;
  std::array<std::shared_ptr<LoadedKernels>, compiled_kernels> kernels_;  // of CompiledPlan::cubins
  struct PacketFunctions {
    const void *packets = nullptr, *lines = nullptr;
  };
  const void* blocks_ = nullptr;
  PacketFunctions straight_, in_phases_;
  PlanLayout layout_ = {};
  uint32_t scratch_chunks_ = 0;    // of the rank that has most
  uint32_t blocks_of_launch_ = 0;  // at most
  char* own_ = nullptr;
  char* shared_ = nullptr;  // this rank's part; NULL if other ranks do not access any
  char* shared_of_ranks_[channel::max_gpu_ranks] = {};
};

}  // namespace narrowcast::executor::cuda
