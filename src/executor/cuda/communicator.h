// The communicator of the CUDA backend: GPUs and scratch memory of the ranks, the order of calls, and the first error.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/world_id.h"
#include "channel/memory/memory_channel.h"
#include "channel/network/remote_ranks.h"
#include "channel/peer/peer_memory.h"
#include "channel/peer/registered_memory.h"
#include "channel/port/port_channel.h"
#include "channel/port/proxy.h"
#include "device/device_guard.h"
#include "executor/call.h"
#include "executor/communicator.h"
#include "executor/cuda/blocks/pieces.h"
#include "executor/cuda/packets/launch.h"
#include "executor/cuda/state.h"
#include "executor/cuda/stream_order.h"
#include "narrowcast/channel.h"
#include "select/decision.h"
#include "select/options.h"

namespace narrowcast::executor::cuda {

using namespace select;

// Settings on which the ranks agreed when they joined.
struct Agreement {
  uint32_t max_ctas, max_collective_ctas;
  ForcedTransport transport;
  size_t scratch_bytes;
  bool clusters;          // see CallShape
  uint32_t shared_bytes;  // of a CTA, at most
};

class Communicator final : public ncast_comm {
 public:
  // Of the ranks of a rendezvous. secret: of the unique id.
  static ncast_status create(std::unique_ptr<bootstrap::Rendezvous> rendezvous, const bootstrap::WorldId& secret,
                             const ncast_comm_config& config, ncast_comm** result);
  ~Communicator() override;

  ncast_status check_error() override;
  ncast_status call_error() override;
  ncast_status abort() override;
  Counters counters() const override;
  ncast_status wait_until_idle() override;
  void leave_ranks() override;
  ncast_status exchange(const void* mine, size_t bytes, void* all) override;

  // Enqueues the calls of a group in order. Any thread may call this.
  ncast_status launch(const std::vector<Call>& calls);

  ncast_status prepare_plan(const plan::Plan& plan, const plan::verify::Report& proof, ncast_dtype dtype,
                            ncast_redop op, std::unique_ptr<LoadedPlan>* prepared) override;

  // By which kernels report failures and are stopped.
  channel::KernelControl* kernel_control() const { return control_; }
  channel::CtaState* cta_states() const;

  // See narrowcast/comm.h.
  ncast_status register_memory(void* memory, size_t bytes, uint32_t* region);
  ncast_status deregister_memory(uint32_t region);

  // For users' kernels: see narrowcast/channel.h.
  ncast_status create_channels(uint32_t rings, uint32_t slot_bytes, ncast_channels* channels);
  ncast_status create_ports(uint32_t ports, const std::vector<const void*>& memory, ncast_ports* result);
  ncast_status destroy_ports(const ncast_ports& ports);
  ncast_status allocate_shared(size_t bytes, char** own);
  ncast_status free_shared(const void* own);
  ncast_status shared_address(const void* own, int peer, char** address);
  ncast_status registered_address(uint32_t region, int peer, char** address);

 private:
  friend class GeneratedPlan;

  // An internal stream, for kernels of a call that run concurrently with its first kernel.
  struct SideStream {
    cudaStream_t stream = nullptr;
    cudaEvent_t join_event = nullptr;
  };

  // Memory that the kernels of all ranks can access.
  struct Shared {
    std::unique_ptr<channel::PeerMemory> memory;
    size_t bytes;  // as requested
  };
  struct Ports {
    std::unique_ptr<channel::PortChannel> channel;
    std::vector<const void*> memory;  // cannot be freed before the ports
    char* semaphores = nullptr;
  };

  int device() const override { return device_; }

  explicit Communicator(std::unique_ptr<bootstrap::Rendezvous> rendezvous)
      : ncast_comm(NCAST_BACKEND_CUDA, rendezvous->rank(), rendezvous->ranks()), rendezvous_(std::move(rendezvous)) {}
  ncast_status join(const bootstrap::WorldId& secret, const ncast_comm_config& config);
  // The number of CTAs for which the GPU has room, and the shared memory that each may have.
  ncast_status find_max_ctas(uint32_t* ctas, uint32_t* shared_bytes) const;
  // Whether the GPU has room for the clusters of two calls. Other ranks on the same GPU take it.
  ncast_status find_clusters(uint32_t shared_bytes, bool* fit) const;
  ncast_status agree_on_settings(const Options& options, size_t scratch_bytes);
  ncast_status agree_on_costs(const Options& options, CostModel* costs);
  bool over_host() const { return topology_.place == channel::PeerMemory::Place::host; }
  // Fails if ranks are on several hosts, where `what` is not possible.
  ncast_status check_one_host(const char* what) const;
  Link link() const {
    if (remote_.span_hosts()) return Link::gpu_network;
    if (over_host()) return Link::host;
    return topology_.nvlink ? Link::nvlink : Link::pcie;
  }
  // Of a call with this codec.
  uint32_t max_ctas(ncast_codec codec) const {
    return most_ctas(link(), codec, agreement_.max_ctas, agreement_.shared_bytes);
  }
  ncast_status set_up();
  ncast_status connect(const bootstrap::WorldId& secret, bootstrap::Limit limit);
  cudaError_t create_side_streams();

  // Ends a call that began with order_.enter().
  cudaError_t leave(cudaStream_t stream);

  struct DecidedCall {
    const Call& call;
    Decision decision;
  };
  using Transfers = std::vector<const DecidedCall*>;
  void count(const DecidedCall& decided);  // under launching_ and mutex_
  // Launches the kernels of a call and, beside them, the copy of its local part. ctas: see launch_local_copy().
  cudaError_t copy_concurrently(const LocalCopy& copy, uint32_t ctas, cudaStream_t stream,
                                const std::function<cudaError_t()>& launch_kernels);
  cudaError_t launch_point_to_point(const Transfers& transfers, cudaStream_t stream);
  // How values are encoded. All values of a kernel have the same coding.
  struct Coding {
    ncast_dtype dtype;  // INT8 for all raw values
    ncast_codec codec;
    bool operator==(const Coding&) const = default;
  };
  static Coding coding_of(const DecidedCall& decided);
  // chains: bit mask of those that have values (see chain_of()).
  cudaError_t launch_chains(const Transfers& transfers, uint32_t chains, cudaStream_t stream);
  cudaError_t launch_concurrently(const Transfers& transfers, const LocalCopy& copy, cudaStream_t stream);
  struct TransferKernel {
    BlockCall call;
    ncast_dtype dtype;
    Grid grid;
  };
  // One of `kernels` concurrent kernels, for transfers with one coding and a copy within this rank. kernel: its index.
  TransferKernel transfer_kernel(const Transfers& transfers, const LocalCopy& copy, int kernel, int kernels) const;
  // Makes the kernel of one transfer that of another one, which differs from it in its buffer only.
  void set_values(const Call& transfer, TransferKernel* kernel) const;
  cudaError_t launch_collective(const DecidedCall& decided, cudaStream_t stream);
  // Launches a call that runs a loaded plan, and counts it.
  cudaError_t launch_chosen_plan(const Call& call, cudaStream_t stream);
  cudaError_t launch_moves_of(const DecidedCall& decided, cudaStream_t stream);
  cudaError_t launch_reduction_of(const DecidedCall& decided, cudaStream_t stream);
  BlockCall block_call(Operation operation, ncast_codec codec, int kernel) const;
  // Sets the marks that a collective by blocks announces to the other ranks.
  void set_call_marks(const Call& call, channel::AnnouncedCall* announced) const;

  // The place of a receive buffer in registered memory.
  channel::RegionPlace region_place(const void* values, uint64_t bytes) const;
  // Lets the values of a raw call be written directly to destinations in registered memory.
  uint32_t encoded_pieces(const Call& call, const BlockCall& moves) const;
  void plan_direct_writes(BlockCall* call) const;
  // Sets the addresses of a region on every rank for kernels launched after this. NULL removes them.
  ncast_status set_region(uint32_t region, const channel::RegisteredMemory* memory);

  const SideStream& side_stream(int kernel) const { return side_streams_[static_cast<size_t>(kernel - 1)]; }
  // Between fork() and join() the kernel's side stream runs concurrently with `stream`.
  cudaError_t fork(int kernel, cudaStream_t stream);
  cudaError_t join(int kernel, cudaStream_t stream);

  // The following functions require sharing_. index: that of the memory in shared_, which is the same on all ranks.
  ncast_status find_shared(const void* own, size_t* index) const;
  ncast_status check_peer(int peer) const;
  ncast_status check_region(uint32_t region) const;
  ncast_status agree_on_ports(uint32_t ports, const std::vector<size_t>& memory);
  ncast_status set_up_ports(uint32_t ports, const std::vector<size_t>& memory, Ports* result);
  ncast_status start_proxy(channel::PortService* service);

  // Uses a temporary stream, because the legacy stream would wait for calls in flight.
  cudaError_t copy_synchronously(void* to, const void* from, size_t bytes) const;

  void set_error(ncast_status status, const char* message);
  void record_error(ncast_status status, const char* message);
  void peer_failed(ncast_status status, const char* message);
  bool has_error() const;
  // False if all calls are complete. Calls in graphs count as in flight. Any thread.
  bool has_calls_in_flight() const;
  void record_kernel_failure();
  // Whether `peer`, which sent invalid data to this rank, has announced a different call.
  bool announced_other_call(int peer) const;
  // Ends the waits of this rank's kernels; later kernels return at once. Any thread may call this. Does not wait.
  void stop_kernels();
  cudaError_t copy_stop();
  ncast_status set_last_error(ncast_status status);

  int device_ = 0;
  double timeout_seconds_ = 0;
  Agreement agreement_ = {};
  std::unique_ptr<bootstrap::Rendezvous> rendezvous_;
  channel::KernelControl* control_ = nullptr;  // pinned
  cudaStream_t stop_stream_ = nullptr;         // copies control_->stop to the device
  channel::PeerMemory::Topology topology_ = {};
  channel::RemoteRanks remote_;
  std::unique_ptr<channel::PeerMemory> scratch_;
  size_t scratch_bytes_ = 0, mirror_bytes_ = 0;
  channel::Peers peers_ = {};
  channel::ChannelLayout layout_;  // packets come before it in the scratch
  DeviceState* state_ = nullptr;
  bool kernels_may_run_ = false;           // at destruction: their memory is kept until the process exits
  std::atomic<bool> stopped_{false};       // stop_kernels() has been called
  std::atomic<bool> calls_failed_{false};  // a call of this rank failed or was stopped, or this rank has aborted

  std::mutex launching_;
  cudaEvent_t fork_event_ = nullptr;
  StreamOrder order_;  // written under launching_
  std::vector<SideStream> side_streams_;
  // By region number, which is the same on all ranks. Writers also hold sharing_.
  std::array<std::unique_ptr<channel::RegisteredMemory>, channel::max_regions + 1> regions_;
  uint32_t registered_ = 0;  // number of registered regions

  std::mutex sharing_;          // protects the members up to proxy_
  std::vector<Shared> shared_;  // on all ranks in the same order
  std::vector<Ports> ports_;
  std::unique_ptr<channel::PortProxy> proxy_;  // created with the first ports

  mutable std::mutex mutex_;  // protects the members below
  ncast_status error_ = NCAST_OK;
  std::string error_message_;
  std::array<ncast_operation_counters, NCAST_OPERATIONS> counters_ = {};  // without the bytes of calls by blocks
};

}  // namespace narrowcast::executor::cuda
