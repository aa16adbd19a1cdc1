// The CUDA backend's communicator: the ranks' GPUs and scratch, what orders its calls, and its first error.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/tcp_rendezvous.h"
#include "channel/memory/memory_channel.h"
#include "channel/peer/peer_memory.h"
#include "channel/peer/registered_memory.h"
#include "channel/port/port_channel.h"
#include "channel/port/proxy.h"
#include "executor/call.h"
#include "executor/communicator.h"
#include "executor/cuda/device_guard.h"
#include "executor/cuda/packets/launch.h"
#include "executor/cuda/state.h"
#include "narrowcast/channel.h"
#include "select/decision.h"
#include "select/options.h"

namespace narrowcast::executor::cuda {

using namespace select;

// What the ranks have agreed on when they joined.
struct Agreement {
  uint32_t max_ctas;
  ForcedTransport transport;
  size_t scratch_bytes;
};

class Communicator final : public ncast_comm {
 public:
  // Joins; the id's hub listens at `address`.
  static ncast_status create(const bootstrap::TcpAddress& address, const bootstrap::WorldId& secret, int ranks,
                             int rank, const ncast_comm_config& config, ncast_comm** result);
  ~Communicator() override;

  ncast_status check_error() override;
  ncast_status abort() override;
  Counters counters() const override;
  ncast_status wait_until_idle() override;
  void leave_ranks() override;

  // Enqueues calls that were launched together, in the order in which they were made. Any thread.
  ncast_status launch(const std::vector<const Call*>& calls);

  // What narrowcast/comm.h says.
  ncast_status register_memory(void* memory, size_t bytes, uint32_t* region);
  ncast_status deregister_memory(uint32_t region);

  // For kernels of users: what narrowcast/channel.h says.
  ncast_status create_channels(uint32_t rings, uint32_t slot_bytes, ncast_channels* channels);
  ncast_status create_ports(uint32_t ports, const std::vector<const void*>& memory, ncast_ports* result);
  ncast_status destroy_ports(const ncast_ports& ports);
  ncast_status allocate_shared(size_t bytes, char** own);
  ncast_status free_shared(const void* own);
  ncast_status shared_of(const void* own, int peer, char** address);
  ncast_status registered_of(uint32_t region, int peer, char** address);

 private:
  // A stream of the communicator's own, for a kernel of a call that runs beside the first one.
  struct SideStream {
    cudaStream_t stream = nullptr;
    cudaEvent_t joined = nullptr;
  };

  // The call before, of those that run at once or of those that are captured.
  struct LastCall {
    cudaEvent_t event = nullptr;
    cudaStream_t stream = nullptr;
    unsigned long long capture = 0;  // which one
    bool any = false;
  };

  // Memory that all ranks' kernels reach.
  struct Shared {
    std::unique_ptr<channel::PeerMemory> memory;
    size_t bytes;  // as it was asked for
  };
  struct Ports {
    std::unique_ptr<channel::PortChannel> channel;
    std::vector<const void*> memory;  // which must stay as long
    char* semaphores = nullptr;
  };

  Communicator(int ranks, int rank) : ncast_comm(NCAST_BACKEND_CUDA, rank, ranks) {}
  ncast_status join(const bootstrap::TcpAddress& address, const bootstrap::WorldId& secret,
                    const ncast_comm_config& config);
  // The CTAs that may be, by what the GPU has room for.
  ncast_status find_room(uint32_t* ctas) const;
  ncast_status agree(const Options& options, size_t scratch_bytes);
  ncast_status agree_on_costs(const Options& options, CostModel* costs);
  Link link() const {
    if (topology_.place == channel::PeerMemory::Place::host) return Link::host;
    return topology_.nvlink ? Link::nvlink : Link::pcie;
  }
  ncast_status set_up();
  cudaError_t create_side_streams();

  // The stream waits for the communicator's call before, on whatever stream that was; and that it can be waited for.
  cudaError_t enter(cudaStream_t stream);
  cudaError_t leave(cudaStream_t stream);

  struct DecidedCall {
    const Call& call;
    Decision decision;
  };
  using Transfers = std::vector<const DecidedCall*>;
  void count(const DecidedCall& decided);  // under launching_ and mutex_
  cudaError_t launch_point_to_point(const Transfers& transfers, cudaStream_t stream);
  // How values travel: those of one kernel alike.
  struct Coding {
    ncast_dtype dtype;  // INT8 for all that is raw
    ncast_codec codec;
    bool operator==(const Coding&) const = default;
  };
  static Coding coding_of(const DecidedCall& decided);
  cudaError_t launch_at_once(const Transfers& transfers, cudaStream_t stream);
  cudaError_t launch_transfers(const Transfers& transfers, Coding coding, int kernel, int kernels, cudaStream_t stream);
  cudaError_t launch_collective(const DecidedCall& decided, cudaStream_t stream);
  cudaError_t launch_moves_of(const DecidedCall& decided, cudaStream_t stream);
  cudaError_t launch_reduction_of(const DecidedCall& decided, cudaStream_t stream);
  BlockCall block_call(Operation operation, ncast_codec codec, int kernel) const;
  // What a collective by blocks announces to the other ranks.
  void mark_collective(const Call& call, channel::AnnouncedCall* announced) const;

  // Of `bytes` at `values`, where a call receives them.
  channel::RegionPlace place_of(const void* values, uint64_t bytes) const;
  // Has the values of a call that go as they are written where they end up, if that is in registered memory.
  void write_straight(BlockCall* call) const;
  // The addresses of a region's memory on every rank, for kernels that are launched from now on; NULL: none.
  ncast_status set_region(uint32_t region, const channel::RegisteredMemory* memory);

  const SideStream& side_of(int kernel) const { return sides_[static_cast<size_t>(kernel - 1)]; }
  // From fork() to join() the kernel's side stream runs beside what `stream` does.
  cudaError_t fork(int kernel, cudaStream_t stream);
  cudaError_t join(int kernel, cudaStream_t stream);

  // Under sharing_. The number of the memory that this rank has at `own`, which all ranks give it; and what makes
  // ports.
  ncast_status find_shared(const void* own, size_t* number) const;
  ncast_status check_peer(int peer) const;
  ncast_status check_region(uint32_t region) const;
  ncast_status agree_on_ports(uint32_t ports, const std::vector<size_t>& memory);
  ncast_status set_up_ports(uint32_t ports, const std::vector<size_t>& memory, Ports* made);
  ncast_status start_proxy(channel::PortService* service);

  // Beside all streams: the legacy stream would wait for calls in flight.
  cudaError_t copy_beside(void* to, const void* from, size_t bytes) const;

  void set_error(ncast_status status, const char* sentence);
  void record_error(ncast_status status, const char* sentence);
  bool has_error() const;
  void adopt_kernel_failure();
  // Whether `peer`, which sent this rank invalid data, has announced another call.
  bool is_in_other_call(int peer) const;
  // Ends the waits of this rank's kernels, and has later kernels refuse. Any thread; does not wait.
  void stop_kernels();
  channel::CtaState* cta_states() const;
  cudaError_t copy_stop();
  ncast_status set_last_error(ncast_status status);

  int device_ = 0;
  double timeout_seconds_ = 0;
  Agreement agreement_ = {};
  std::unique_ptr<bootstrap::Rendezvous> rendezvous_;
  channel::KernelControl* control_ = nullptr;  // pinned
  cudaStream_t stop_stream_ = nullptr;         // copies control_->stop to the device
  channel::PeerMemory::Topology topology_ = {};
  std::unique_ptr<channel::PeerMemory> scratch_;
  size_t scratch_bytes_ = 0;
  channel::Peers peers_ = {};
  channel::ChannelLayout layout_;  // packets come before it in the scratch
  DeviceState* state_ = nullptr;
  bool kernels_may_run_ = false;  // at its end, so that what they use is left to that of the process

  std::mutex launching_;
  cudaEvent_t forked_ = nullptr;
  LastCall called_, captured_;
  LastCall* entered_ = nullptr;
  std::vector<SideStream> sides_;
  // By number, which is the same on all ranks; it changes under sharing_ as well.
  std::array<std::unique_ptr<channel::RegisteredMemory>, channel::most_regions + 1> regions_;
  uint32_t registered_ = 0;  // how many of them there are

  std::mutex sharing_;          // of what follows
  std::vector<Shared> shared_;  // on all ranks in the same order
  std::vector<Ports> ports_;
  std::unique_ptr<channel::PortProxy> proxy_;  // made with the first ports

  mutable std::mutex mutex_;  // of what follows
  ncast_status error_ = NCAST_OK;
  std::string sentence_;
  std::array<ncast_operation_counters, NCAST_OPERATIONS> counters_ = {};  // but for what goes by blocks
};

}  // namespace narrowcast::executor::cuda
