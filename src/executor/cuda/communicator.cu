#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/interrupt.h"
#include "bootstrap/shared_settings.h"
#include "channel/packet/packet_area.h"
#include "channel/peer/zeroed_memory.h"
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/communicator.h"
#include "executor/cuda/generated/codec_kernels.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/state.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {
namespace {

constexpr size_t default_scratch_bytes = size_t{176} << 20;
constexpr size_t default_host_scratch_bytes = size_t{160} << 20;
// How long calls in flight may take to complete after another rank has failed.
constexpr auto peer_failure_grace = std::chrono::milliseconds(250);

ncast_status failed(const char* what, cudaError_t error) { return channel::cuda_failure(what, error); }

// Keeps an object until the process exits.
template <typename Used>
void leak(Used& used) {
  static_cast<void>(new Used(std::move(used)));
}

}  // namespace

ncast_status Communicator::create(std::unique_ptr<bootstrap::Rendezvous> rendezvous, const bootstrap::WorldId& secret,
                                  const ncast_comm_config& config, ncast_comm** result) {
  int device = config.device;
  if (device < 0) {
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return failed("finding the GPU", error);
  }
  const device::DeviceGuard device_guard(device);
  // Ranks of two levels may connect for a message that is being captured.
  const device::RelaxedCaptureMode relaxed;
  std::unique_ptr<Communicator> comm(new Communicator(std::move(rendezvous)));
  comm->device_ = device;
  if (ncast_status status = comm->join(secret, config)) {
    const std::string message = ncast_last_error();
    comm->rendezvous_->publish_failure(status, message.c_str());
    return fail(status, "%s", message.c_str());
  }
  *result = comm.release();
  return NCAST_OK;
}

ncast_status Communicator::join(const bootstrap::WorldId& secret, const ncast_comm_config& config) {
  timeout_seconds_ = config.timeout_seconds;
  Options options;
  if (ncast_status status = Options::of(config, &options)) return status;
  if (ncast_status status = remote_.find(*rendezvous_)) return status;
  if (ncast_status status = channel::PeerMemory::find_topology(*rendezvous_, options.over_host, &topology_))
    return status;
  const size_t own_default = over_host() ? default_host_scratch_bytes : default_scratch_bytes;
  if (ncast_status status = agree_on_settings(options, config.scratch_bytes != 0 ? config.scratch_bytes : own_default))
    return status;
  if (over_host())
    agreement_.max_ctas = std::min(agreement_.max_ctas, most_ctas_over(link(), agreement_.shared_bytes, false));
  CostModel costs;
  if (ncast_status status = agree_on_costs(options, &costs)) return status;
  set_decider({.ranks = ranks(),
               .link = link(),
               .max_ctas = agreement_.max_ctas,
               .transport = agreement_.transport,
               .clusters = agreement_.clusters,
               .shared_bytes = agreement_.shared_bytes,
               .max_collective_ctas = agreement_.max_collective_ctas},
              std::move(costs));
  if (ncast_status status = set_up()) return status;
  if (remote_.span_hosts()) {
    if (ncast_status status = connect(secret, bootstrap::Limit{config.create_timeout_seconds})) return status;
  }
  if (ncast_status status = rendezvous_->barrier()) return status;
  rendezvous_->set_limit(bootstrap::Limit{config.timeout_seconds});
  return NCAST_OK;
}

ncast_status Communicator::find_max_ctas(uint32_t* ctas, uint32_t* shared_bytes) const {
  int most = 0, sms = 0;
  const std::pair<cudaDeviceAttr, int*> wanted[] = {{cudaDevAttrMaxSharedMemoryPerBlockOptin, &most},
                                                    {cudaDevAttrMultiProcessorCount, &sms}};
  for (const auto& [attribute, value] : wanted)
    if (const cudaError_t error = cudaDeviceGetAttribute(value, attribute, device_); error != cudaSuccess)
      return failed("querying the GPU", error);
  *shared_bytes = static_cast<uint32_t>(most);
  if (*shared_bytes < least_shared_bytes)
    return fail(NCAST_UNSUPPORTED, "the kernels need %u bytes of shared memory per CTA, but GPU %d has %d",
                least_shared_bytes, device_, most);
  *ctas = ctas_that_fit(static_cast<uint32_t>(sms));
  return NCAST_OK;
}

ncast_status Communicator::find_clusters(uint32_t shared_bytes, bool* fit) const {
  int clusters = 0;
  if (const cudaError_t error = find_max_clusters(shared_bytes, &clusters); error != cudaSuccess)
    return failed("querying the GPU's clusters", error);
  *fit = !topology_.shares_gpu && static_cast<uint32_t>(clusters) >= 2 * most_clustered_ctas / cluster_ctas;
  return NCAST_OK;
}

ncast_status Communicator::agree_on_settings(const Options& options, size_t scratch_bytes) {
  uint32_t fitting = 0, shared_bytes = 0;
  bool clusters = false;
  if (ncast_status status = find_max_ctas(&fitting, &shared_bytes)) return status;
  shared_bytes = std::min(options.shared_bytes, shared_bytes);
  if (ncast_status status = find_clusters(shared_bytes, &clusters)) return status;
  agreement_ = {std::min(options.max_ctas, fitting),
                options.max_collective_ctas,
                options.transport,
                scratch_bytes,
                clusters,
                shared_bytes};
  struct Offer {
    uint32_t max_ctas, max_collective_ctas, clusters, shared_bytes;
    bootstrap::SharedSettings settings;
  };
  Offer own = {agreement_.max_ctas, agreement_.max_collective_ctas, clusters, shared_bytes, {}};
  if (ncast_status status = own.settings.add("scratch_bytes", scratch_bytes)) return status;
  if (ncast_status status = own.settings.add("NARROWCAST_PATH", name_of(options.transport))) return status;
  std::vector<Offer> all(static_cast<size_t>(ranks()));
  if (ncast_status status = rendezvous_->all_gather(&own, sizeof own, all.data())) return status;
  std::vector<bootstrap::SharedSettings> settings;
  for (const Offer& other : all) {
    settings.push_back(other.settings);
    agreement_.max_ctas = std::min(agreement_.max_ctas, other.max_ctas);
    agreement_.max_collective_ctas = std::min(agreement_.max_collective_ctas, other.max_collective_ctas);
    agreement_.clusters = agreement_.clusters && other.clusters != 0;
    agreement_.shared_bytes = std::min(agreement_.shared_bytes, other.shared_bytes);
  }
  return bootstrap::check_same_settings(settings);
}

// All ranks use the model of rank 0, so that they make the same decisions.
ncast_status Communicator::agree_on_costs(const Options& options, CostModel* costs) {
  if (rank() == 0) {
    if (ncast_status status = options.load_costs(costs)) return status;
  }
  std::vector<uint64_t> all_bytes(static_cast<size_t>(ranks()));
  const uint64_t own_bytes = costs->text().size();
  if (ncast_status status = rendezvous_->all_gather(&own_bytes, sizeof own_bytes, all_bytes.data())) return status;
  // all_gather requires the same number of bytes from every rank: use that of rank 0.
  std::string own = costs->text(), all;
  own.resize(all_bytes[0]);
  all.resize(own.size() * static_cast<size_t>(ranks()));
  if (ncast_status status = rendezvous_->all_gather(own.data(), own.size(), all.data())) return status;
  return rank() == 0 ? NCAST_OK : CostModel::parse(all.substr(0, own.size()), "the cost model of rank 0", costs);
}

// The streams are not warmed up by an empty kernel, because after the first use of one of them every call on the GPU
// takes 0.2 us longer.
cudaError_t Communicator::create_side_streams() {
  // The last one is for a copy beside the kernels.
  side_streams_.resize(static_cast<size_t>(std::max(max_concurrent_kernels(ranks()), 1)));
  for (SideStream& side : side_streams_) {
    if (const cudaError_t error = cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking)) return error;
    if (const cudaError_t error = cudaEventCreateWithFlags(&side.join_event, cudaEventDisableTiming)) return error;
  }
  return cudaSuccess;
}

ncast_status Communicator::set_up() {
  if (ncast_status status = generated::load_codec_kernels()) return status;
  if (const cudaError_t loaded = load_kernels()) return failed("loading the kernels", loaded);
  cudaError_t error = cudaHostAlloc(reinterpret_cast<void**>(&control_), sizeof *control_, cudaHostAllocPortable);
  if (error == cudaSuccess) {
    *control_ = {};
    error = channel::allocate_zeroed(&state_, sizeof *state_);
  }
  if (error == cudaSuccess) error = order_.create();
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&fork_event_, cudaEventDisableTiming);
  if (error == cudaSuccess) error = create_side_streams();
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stop_stream_, cudaStreamNonBlocking);
  if (error != cudaSuccess) return failed("setting up the communicator", error);
  const size_t packet_bytes = packet_scratch_bytes(ranks(), over_host());
  const size_t layout_begin = (packet_bytes + 4095) / 4096 * 4096;
  const size_t max_bytes = agreement_.scratch_bytes;
  if (max_bytes > layout_begin)
    layout_ = channel::ChannelLayout(layout_begin, ranks(), rings_of_ctas(agreement_.max_ctas, agreement_.shared_bytes),
                                     max_bytes - layout_begin);
  if (layout_.slots() == 0)
    return fail(NCAST_INVALID_ARGUMENT, "scratch_bytes is %zu, which is too small for %d ranks", max_bytes, ranks());
  scratch_bytes_ = layout_begin + layout_.bytes(ranks());
  const size_t own_slots = layout_.slot_data(rank(), 0), flags = layout_.flags(0, 0, ranks());
  const channel::PeerMemory::Mirrors mirrors{remote_.mask(),
                                             {{0, sizeof(channel::PacketState)},
                                              {own_slots, layout_.slot_data(rank() + 1, 0) - own_slots},
                                              {flags, scratch_bytes_ - flags}}};
  if (ncast_status status =
          channel::PeerMemory::create(*rendezvous_, topology_.place, scratch_bytes_, mirrors, &scratch_))
    return status;
  mirror_bytes_ = static_cast<size_t>(std::popcount(mirrors.ranks)) * mirrors.bytes();
  peers_.rank = rank();
  peers_.ranks = ranks();
  for (int peer = 0; peer < ranks(); ++peer) peers_.scratch[peer] = scratch_->of(peer);
  peers_.control = control_;
  peers_.ctas = cta_states();
  peers_.timeout_ns = static_cast<uint64_t>(timeout_seconds_ * 1e9);
  rendezvous_->on_failure([this](ncast_status status, const char* message) { peer_failed(status, message); });
  return NCAST_OK;
}

ncast_status Communicator::connect(const bootstrap::WorldId& secret, bootstrap::Limit limit) {
  const auto memory_of = [this](int peer) -> channel::Forwarder::Memory {
    return {scratch_->on_host(rank()), scratch_->on_host(peer), layout_, offsetof(channel::PacketState, call_words)};
  };
  const auto failed = [this](ncast_status status, const char* message) {
    if (status == NCAST_REMOTE_ERROR)
      peer_failed(status, message);
    else
      set_error(status, message);
  };
  return remote_.connect(*rendezvous_, secret, limit, bootstrap::Limit{timeout_seconds_}, memory_of, failed);
}

ncast_status Communicator::check_one_host(const char* what) const {
  if (!remote_.span_hosts()) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED, "the ranks are on several hosts, between which %s", what);
}

// Keeps what abort() needs.
void Communicator::leave_ranks() {
  const device::DeviceGuard device_guard(device_);
  rendezvous_->on_failure(nullptr);  // the handler uses what is released here
  for (const Ports& ports : ports_) proxy_->remove(ports.channel->service());
  proxy_.reset();
  if (remote_.is_connected()) {
    // After the barrier, the kernels of no rank need the connections. If it fails, they have been stopped.
    static_cast<void>(rendezvous_->barrier());
    remote_.disconnect();
  }
  if (kernels_may_run_) {
    leak(ports_);
    leak(shared_);
    leak(regions_);
    leak(scratch_);
    return;
  }
  ports_.clear();
  shared_.clear();
  for (auto& region : regions_) region.reset();
  scratch_.reset();
}

Communicator::~Communicator() {
  const device::DeviceGuard device_guard(device_);
  leave_ranks();  // not called yet if creation failed
  rendezvous_.reset();
  for (const SideStream& side : side_streams_) {
    if (side.join_event != nullptr) cudaEventDestroy(side.join_event);
    if (side.stream != nullptr) cudaStreamDestroy(side.stream);
  }
  if (stop_stream_ != nullptr) cudaStreamDestroy(stop_stream_);
  if (fork_event_ != nullptr) cudaEventDestroy(fork_event_);
  if (kernels_may_run_) return;
  cudaFree(state_);
  if (control_ != nullptr) cudaFreeHost(control_);
}

// In the packet area of the scratch, unless the scratch is in host memory, which kernels read too slowly.
channel::CtaState* Communicator::cta_states() const {
  return over_host() ? state_->ctas : reinterpret_cast<channel::PacketState*>(scratch_->of(rank()))->ctas;
}

// Copies the stop flag to the words that kernels read when they start.
cudaError_t Communicator::copy_stop() {
  return cudaMemcpy2DAsync(&cta_states()->stopped, sizeof(channel::CtaState), control_->stop_copies, sizeof(uint32_t),
                           sizeof(uint32_t), channel::cta_states, cudaMemcpyHostToDevice, stop_stream_);
}

void Communicator::stop_kernels() {
  if (!stopped_.exchange(true) && has_calls_in_flight()) calls_failed_ = true;
  __atomic_store_n(&control_->stop, 1u, __ATOMIC_RELEASE);  // first: the copy may wait for kernels that this stops
  if (scratch_ == nullptr) return;                          // no kernel has been launched yet
  for (uint32_t& copy : control_->stop_copies) __atomic_store_n(&copy, 1u, __ATOMIC_RELAXED);
  const device::DeviceGuard device_guard(device_);
  copy_stop();
}

bool Communicator::has_calls_in_flight() const {
  if (order_.any_captured()) return true;
  const device::RelaxedCaptureMode relaxed;  // other threads may be capturing graphs
  const bool in_flight = cudaEventQuery(order_.last_eager()) == cudaErrorNotReady;
  if (in_flight) cudaGetLastError();
  return in_flight;
}

// A peer may end or abort when its own calls are complete, as NCCL allows. Calls in flight that have received
// everything from it can complete, so they get a moment before the kernels are stopped.
void Communicator::peer_failed(ncast_status status, const char* message) {
  const device::DeviceGuard device_guard(device_);
  const auto start = bootstrap::Clock::now();
  while (!stopped_ && has_calls_in_flight() && bootstrap::Clock::now() - start < peer_failure_grace)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  record_error(status, message);
}

void Communicator::set_error(ncast_status status, const char* message) {
  record_kernel_failure();  // a kernel's failure, if any, came first
  calls_failed_ = true;
  record_error(status, message);
}

void Communicator::record_error(ncast_status status, const char* message) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ != NCAST_OK) return;
    error_ = status;
    error_message_ = message;
  }
  stop_kernels();
  rendezvous_->publish_failure(status, message);
}

// peer_failed() records failures of other ranks.
ncast_status Communicator::check_error() {
  record_kernel_failure();
  const std::lock_guard lock(mutex_);
  return error_ == NCAST_OK ? NCAST_OK : fail(error_, "%s", error_message_.c_str());
}

ncast_status Communicator::call_error() {
  record_kernel_failure();
  return calls_failed_ ? check_error() : NCAST_OK;
}

bool Communicator::has_error() const {
  const std::lock_guard lock(mutex_);
  return error_ != NCAST_OK;
}

bool Communicator::announced_other_call(int peer) const {
  if (scratch_ == nullptr) return false;
  const device::DeviceGuard device_guard(device_);
  const auto* const state = reinterpret_cast<const channel::PacketState*>(scratch_->of(rank()));
  // The announcement may still be in flight.
  for (int attempt = 0; attempt < 10; ++attempt) {
    channel::CallWords words;
    if (copy_synchronously(&words, &state->call_words, sizeof words) != cudaSuccess) return false;
    for (uint32_t kind = 0; kind < channel::call_kinds; ++kind) {
      const channel::CallWord current{words.current[kind][peer]};
      const channel::CallWord announced{words.announced[kind][current.number() % channel::CallWords::history][peer]};
      if (announced.disagrees_with(current)) return true;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return false;
}

// Kernels report a failure only if they were not stopped before.
void Communicator::record_kernel_failure() {
  uint32_t failed = __atomic_load_n(&control_->failed, __ATOMIC_ACQUIRE);
  const uint32_t peer = control_->peer;
  if (failed == channel::no_failure || has_error()) return;
  calls_failed_ = true;
  if (failed == channel::payload_corrupt && announced_other_call(static_cast<int>(peer)))
    failed = channel::call_mismatch;
  const std::string other = remote_.name_of(static_cast<int>(peer));
  const int own = rank();
  char message[300];
  if (failed == channel::wait_timed_out) {
    std::snprintf(message, sizeof message, "rank %d waited for %s for more than %g seconds", own, other.c_str(),
                  timeout_seconds_);
    record_error(NCAST_TIMEOUT, message);
  } else if (failed == channel::request_timed_out) {
    std::snprintf(message, sizeof message, "rank %d waited for its requests to %s for more than %g seconds", own,
                  other.c_str(), timeout_seconds_);
    record_error(NCAST_TIMEOUT, message);
  } else if (failed == channel::payload_corrupt) {
    std::snprintf(message, sizeof message, "rank %d received invalid data from %s", own, other.c_str());
    record_error(NCAST_CORRUPT, message);
  } else if (failed == channel::call_mismatch) {
    std::snprintf(message, sizeof message,
                  "rank %d and %s made different calls: operation, count, dtype, codec, op or root differs", own,
                  other.c_str());
    record_error(NCAST_MISMATCH, message);
  }
}

ncast_status Communicator::abort() {
  set_error(NCAST_ABORTED, "aborted");
  return NCAST_OK;
}

ncast_status Communicator::exchange(const void* mine, size_t bytes, void* all) {
  const std::lock_guard lock(sharing_);
  if (ncast_status status = check_error()) return status;
  const ncast_status status = rendezvous_->all_gather(mine, bytes, all);
  return status == NCAST_OK ? status : set_last_error(status);
}

cudaError_t Communicator::copy_synchronously(void* to, const void* from, size_t bytes) const {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return error;
}

Counters Communicator::counters() const {
  const device::DeviceGuard device_guard(device_);
  std::array<ByteCounters, NCAST_OPERATIONS> sent = {};
  copy_synchronously(sent.data(), state_->byte_counters, sizeof sent);
  Counters counters;
  counters.scratch_bytes = scratch_bytes_ + mirror_bytes_;
  counters.network_bytes = remote_.payload_bytes();
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < sent.size(); ++i) {
    counters.operations[i] = counters_[i];
    counters.operations[i].raw_bytes += sent[i].raw_bytes;
    counters.operations[i].wire_bytes += sent[i].wire_bytes;
  }
  return counters;
}

ncast_status Communicator::wait_until_idle() {
  if (!order_.any_eager() && !order_.any_captured()) return NCAST_OK;
  const device::DeviceGuard device_guard(device_);
  // Poll first, because cudaDeviceSynchronize cannot be interrupted. An abort ends the kernels.
  for (auto asked = bootstrap::Clock::now(); order_.any_eager();) {
    if (cudaEventQuery(order_.last_eager()) != cudaErrorNotReady) break;
    cudaGetLastError();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (bootstrap::Clock::now() - asked < bootstrap::interrupt_interval) continue;
    asked = bootstrap::Clock::now();
    if (bootstrap::is_interrupted()) static_cast<void>(abort());
  }
  // Waits for the whole device, because a graph with calls of this communicator may be running on any stream.
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return NCAST_OK;
  // Happens, for example, while another thread captures a graph. The other ranks are told, because they would otherwise
  // wait for this rank while it waits for them.
  kernels_may_run_ = true;
  return set_last_error(failed("waiting for the communicator's calls", error));
}

cudaError_t Communicator::leave(cudaStream_t stream) {
  const cudaError_t error = order_.leave(stream);
  if (stopped_) calls_failed_ = true;  // the kernels were stopped while the call was being launched
  return error;
}

}  // namespace narrowcast::executor::cuda
