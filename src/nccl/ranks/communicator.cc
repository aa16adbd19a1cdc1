#include "nccl/ranks/communicator.h"

#include <chrono>
#include <cstddef>
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

constexpr auto longest_exchange_end = std::chrono::seconds(2);

struct Table {
  std::mutex mutex;
  std::unordered_map<Comm, std::shared_ptr<Communicator>> communicators;
  // Of those that have had no call.
  std::unordered_map<Comm, std::string> names;
  std::unordered_map<Comm, std::unique_ptr<Meeting>> meetings;
};

Table& table() {
  static Table& the = *new Table;  // never freed: calls may come until the process ends
  return the;
}

// What is kept for a handle, if there is any; its table is locked.
template <typename Value>
Value take_kept(std::unordered_map<Comm, Value>& all, Comm handle) {
  auto node = all.extract(handle);
  return node.empty() ? Value() : std::move(node.mapped());
}

std::string take_name(Comm handle) {
  const std::lock_guard lock(table().mutex);
  return take_kept(table().names, handle);
}

// NULL when NCCL does not take the handle.
std::shared_ptr<Communicator> look_at(Comm handle) {
  using Ask = int(Comm, int*);
  const InsideNccl inside;
  int rank = 0, ranks = 0, device = 0;
  if (real<Ask>(Function::CommUserRank)(handle, &rank) != success ||
      real<Ask>(Function::CommCount)(handle, &ranks) != success ||
      real<Ask>(Function::CommCuDevice)(handle, &device) != success)
    return nullptr;
  auto communicator = std::make_shared<Communicator>(handle, rank, ranks, device, take_name(handle));
  if (ranks == 1)
    communicator->forward_all("the communicator has one rank");
  else if (driver() == nullptr)
    communicator->forward_all("there is no CUDA driver");
  return communicator;
}

}  // namespace

Communicator::Communicator(Comm its_handle, int its_rank, int its_ranks, int its_device, std::string its_name)
    : handle(its_handle),
      rank(its_rank),
      ranks(its_ranks),
      device(its_device),
      traits{its_ranks, std::move(its_name)},
      statistics(add_statistics(its_rank, its_ranks)) {}

Communicator::~Communicator() {
  if (driver() == nullptr) return;
  const OnDevice on_device(device);
  if (side_event != nullptr) driver()->cuEventDestroy_v2(side_event);
  for (void* const stream : {side_stream, exchange_stream})
    if (stream != nullptr) driver()->cuStreamDestroy_v2(stream);
  if (exchange_memory == nullptr) return;
  if (aborted.load())
    bury_memory(device, exchange_memory);
  else
    driver()->cuMemFree_v2(exchange_memory);
}

void Communicator::abort() {
  aborted.store(true);
  forward_all("the communicator was aborted");
  if (ncast_comm* const comm = engine_comm.load()) engine()->ncast_comm_abort(comm);
  // An exchange looks at `aborted` all the time, unless NCCL itself hangs in it.
  if (exchanging.try_lock_for(longest_exchange_end)) exchanging.unlock();
}

void Communicator::refresh_sent() {
  ncast_comm* const comm = engine_comm.load();
  if (comm == nullptr || aborted.load()) return;
  const BesideCaptures beside_captures;
  SentByOperation sent;
  if (engine()->ncast_comm_get_operation_counters(comm, sent.data(), operation_count) == NCAST_OK)
    statistics->set_sent(sent);
}

void keep_name(Comm handle, const Config* config) {
  if (handle == nullptr || config == nullptr || config->magic != config_magic) return;
  if (config->size < offsetof(Config, comm_name) + sizeof config->comm_name || config->comm_name == nullptr) return;
  const std::lock_guard lock(table().mutex);
  table().names[handle] = config->comm_name;
}

void keep_meeting(Comm handle, std::unique_ptr<Meeting> meeting) {
  if (handle == nullptr || meeting == nullptr) return;
  const std::lock_guard lock(table().mutex);
  table().meetings[handle] = std::move(meeting);
}

std::shared_ptr<Communicator> known_communicator(Comm handle) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().communicators.find(handle);
  return found == table().communicators.end() ? nullptr : found->second;
}

std::shared_ptr<Communicator> find_communicator(Comm handle) {
  if (std::shared_ptr<Communicator> known = known_communicator(handle)) return known;
  if (handle == nullptr) return nullptr;
  std::shared_ptr<Communicator> communicator = look_at(handle);
  if (communicator == nullptr) return nullptr;
  schedule_statistics();
  const std::lock_guard lock(table().mutex);
  auto meeting = take_kept(table().meetings, handle);
  if (communicator->why_forwarded.load() == nullptr) communicator->meeting = std::move(meeting);
  communicator->will_meet.store(communicator->meeting != nullptr);
  return table().communicators.try_emplace(handle, std::move(communicator)).first->second;
}

std::shared_ptr<Communicator> take_communicator(Comm handle) {
  const std::lock_guard lock(table().mutex);
  table().names.erase(handle);
  table().meetings.erase(handle);
  auto node = table().communicators.extract(handle);
  return node.empty() ? nullptr : std::move(node.mapped());
}

void schedule_statistics() {
  const auto refresh_all = [] {
    const std::lock_guard lock(table().mutex);
    for (const auto& [handle, communicator] : table().communicators) communicator->refresh_sent();
  };
  write_statistics_at_exit({.path = settings().stats,
                            .period_seconds = settings().stats_seconds,
                            .nccl_path = real_nccl().path,
                            .nccl_version = version_text(real_nccl().version),
                            .refresh = refresh_all});
}

}  // namespace narrowcast::nccl
