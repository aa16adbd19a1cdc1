#include "nccl/ranks/communicator.h"

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/forward.h"
#include "nccl/libraries/real_nccl.h"
#include "nccl/ranks/deferred_destroy.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

constexpr auto exchange_abort_timeout = std::chrono::seconds(2);

struct Table {
  std::mutex mutex;
  std::unordered_map<Comm, std::shared_ptr<Communicator>> communicators;
  // For handles that have not been used in a call yet.
  std::unordered_map<Comm, CommunicatorConfig> configs;
  std::unordered_map<Comm, std::unique_ptr<PairHandshake>> handshakes;
};

Table& table() {
  static Table& the = *new Table;  // never freed: calls may come until the process ends
  return the;
}

// Removes and returns the entry of a handle; a default value if there is none. The table must be locked.
template <typename Value>
Value extract(std::unordered_map<Comm, Value>& all, Comm handle) {
  auto node = all.extract(handle);
  return node.empty() ? Value() : std::move(node.mapped());
}

// NULL if NCCL rejects the handle.
std::shared_ptr<Communicator> query_nccl(Comm handle) {
  using Query = int(Comm, int*);
  const InsideNccl inside;
  int rank = 0, ranks = 0, device = 0;
  if (real<Query>(Function::CommUserRank)(handle, &rank) != success ||
      real<Query>(Function::CommCount)(handle, &ranks) != success ||
      real<Query>(Function::CommCuDevice)(handle, &device) != success)
    return nullptr;
  auto communicator = std::make_shared<Communicator>(handle, rank, ranks, device, config_of(handle));
  if (ranks == 1)
    communicator->forward_all("the communicator has one rank");
  else if (driver() == nullptr)
    communicator->forward_all("there is no CUDA driver");
  return communicator;
}

}  // namespace

Communicator::Communicator(Comm nccl_handle, int own_rank, int rank_count, int ordinal,
                           CommunicatorConfig communicator_config)
    : handle(nccl_handle),
      rank(own_rank),
      ranks(rank_count),
      device(ordinal),
      config(std::move(communicator_config)),
      statistics(add_statistics(own_rank, rank_count)),
      timer(*statistics),
      record(own_rank, rank_count) {}

Communicator::~Communicator() {
  if (driver() == nullptr) return;
  const DeviceGuard guard(device);
  if (side_event != nullptr) driver()->cuEventDestroy_v2(side_event);
  for (void* const stream : {side_stream, exchange_stream})
    if (stream != nullptr) driver()->cuStreamDestroy_v2(stream);
  if (exchange_memory == nullptr) return;
  if (aborted.load())
    defer_free(device, exchange_memory);
  else
    driver()->cuMemFree_v2(exchange_memory);
}

void Communicator::abort() {
  aborted.store(true);
  forward_all("the communicator was aborted");
  if (ncast_comm* const comm = engine_comm.load()) engine()->ncast_comm_abort(comm);
  // A running exchange polls `aborted` and ends immediately, unless NCCL itself hangs.
  if (exchanging.try_lock_for(exchange_abort_timeout)) exchanging.unlock();
}

void Communicator::mark_traffic(ncast_comm* created) {
  if (engine()->ncast_comm_get_operation_counters(created, uncounted_traffic.data(), operation_count) != NCAST_OK)
    uncounted_traffic = {};
}

void Communicator::refresh_traffic() {
  ncast_comm* const comm = engine_comm.load();
  if (comm == nullptr || aborted.load()) return;
  const RelaxedCaptureMode relaxed;
  TrafficByOperation traffic;
  if (engine()->ncast_comm_get_operation_counters(comm, traffic.data(), operation_count) != NCAST_OK) return;
  for (size_t i = 0; i < traffic.size(); ++i) {
    traffic[i].raw_bytes -= uncounted_traffic[i].raw_bytes;
    traffic[i].wire_bytes -= uncounted_traffic[i].wire_bytes;
  }
  statistics->set_traffic(traffic);
}

CommunicatorTraits traits_of(const Communicator& comm) {
  return {.ranks = comm.ranks, .name = comm.config.name, .has_windows = comm.has_windows.load()};
}

const EnginePredictor& predictor_of(Communicator& comm) {
  if (comm.predictor == nullptr)
    comm.predictor = comm.attached() ? std::make_unique<EnginePredictor>(comm.engine_comm.load())
                                     : std::make_unique<EnginePredictor>(comm.ranks, comm.max_ctas.load(),
                                                                         comm.config.name, comm.hosts != 0);
  return *comm.predictor;
}

void remember_config(Comm handle, const CommunicatorConfig& config) {
  if (handle == nullptr || config == CommunicatorConfig()) return;
  const std::lock_guard lock(table().mutex);
  table().configs[handle] = config;
}

void remember_handshake(Comm handle, std::unique_ptr<PairHandshake> handshake) {
  if (handle == nullptr || handshake == nullptr) return;
  const std::lock_guard lock(table().mutex);
  table().handshakes[handle] = std::move(handshake);
}

CommunicatorConfig config_of(Comm handle) {
  const std::lock_guard lock(table().mutex);
  if (const auto known = table().communicators.find(handle); known != table().communicators.end())
    return known->second->config;
  const auto created = table().configs.find(handle);
  return created == table().configs.end() ? CommunicatorConfig() : created->second;
}

std::shared_ptr<Communicator> known_communicator(Comm handle) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().communicators.find(handle);
  return found == table().communicators.end() ? nullptr : found->second;
}

std::shared_ptr<Communicator> find_or_add_communicator(Comm handle) {
  if (std::shared_ptr<Communicator> known = known_communicator(handle)) return known;
  if (handle == nullptr) return nullptr;
  start_recording(settings().record);
  std::shared_ptr<Communicator> communicator = query_nccl(handle);
  if (communicator == nullptr) return nullptr;
  schedule_statistics();
  const std::lock_guard lock(table().mutex);
  table().configs.erase(handle);
  auto handshake = extract(table().handshakes, handle);
  if (communicator->why_forwarded.load() == nullptr) communicator->handshake = std::move(handshake);
  communicator->handshake_pending.store(communicator->handshake != nullptr);
  return table().communicators.try_emplace(handle, std::move(communicator)).first->second;
}

std::shared_ptr<Communicator> remove_communicator(Comm handle) {
  const std::lock_guard lock(table().mutex);
  table().configs.erase(handle);
  table().handshakes.erase(handle);
  return extract(table().communicators, handle);
}

void schedule_statistics() {
  const auto refresh_all = [] {
    const std::lock_guard lock(table().mutex);
    for (const auto& [handle, communicator] : table().communicators) communicator->refresh_traffic();
  };
  write_statistics_at_exit({.path = settings().stats,
                            .period_seconds = settings().stats_seconds,
                            .nccl_path = real_nccl().path,
                            .nccl_version = version_text(real_nccl().version),
                            .refresh = refresh_all});
}

}  // namespace narrowcast::nccl
