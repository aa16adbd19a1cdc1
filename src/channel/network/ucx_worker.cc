#include "channel/network/ucx_worker.h"

#include <cstring>

#include "status/error.h"

namespace narrowcast::channel {
namespace {

ncast_status check_call(const UcxLibrary& library, const char* function, ucx::Status status) {
  return status == ucx::ok ? NCAST_OK : fail(NCAST_SYSTEM_ERROR, "%s", library.failure(function, status).c_str());
}

}  // namespace

ncast_status UcxWorker::create(const UcxLibrary& library, std::shared_ptr<UcxWorker>* result) {
  std::shared_ptr<UcxWorker> worker(new UcxWorker(library));
  if (ncast_status status = worker->initialize()) return status;
  *result = std::move(worker);
  return NCAST_OK;
}

ncast_status UcxWorker::initialize() {
  if (ncast_status status = library_.make_context(&context_)) return status;
  const ucx::WorkerParameters parameters = {ucx::WorkerParameters::with_thread_mode,
                                            ucx::WorkerParameters::one_thread_at_a_time};
  if (ncast_status status =
          check_call(library_, "ucp_worker_create", library_.worker_create(context_, &parameters, &worker_)))
    return status;
  ucx::WorkerAttributes attributes = {};
  attributes.mask = ucx::WorkerAttributes::with_address | ucx::WorkerAttributes::with_address_flags;
  attributes.address_flags = ucx::WorkerAttributes::of_networks_only;  // the peers are on other hosts
  if (ncast_status status = check_call(library_, "ucp_worker_query", library_.worker_query(worker_, &attributes)))
    return status;
  address_.assign(static_cast<const char*>(attributes.address), attributes.address_bytes);
  library_.worker_release_address(worker_, attributes.address);

  ucx::HandlerParameters handler = {};
  handler.mask = ucx::HandlerParameters::with_id | ucx::HandlerParameters::with_flags |
                 ucx::HandlerParameters::with_handler | ucx::HandlerParameters::with_argument;
  handler.id = message_id;
  handler.flags = ucx::HandlerParameters::data_persists;
  handler.handle = [](void* argument, const void* header, size_t header_bytes, void* data, size_t bytes,
                      const ucx::ArrivalParameters* arrival) {
    Header content;
    if (header_bytes != sizeof content) return ucx::ok;
    std::memcpy(&content, header, sizeof content);
    const auto& receivers = static_cast<UcxWorker*>(argument)->receivers_;
    const auto receiver = receivers.find(content.key);
    if (receiver == receivers.end()) return ucx::ok;
    const bool is_rendezvous = (arrival->attributes & ucx::ArrivalParameters::rendezvous) != 0;
    return receiver->second->arrive(content.number, data, bytes, is_rendezvous);
  };
  handler.argument = this;
  return check_call(library_, "ucp_worker_set_am_recv_handler", library_.worker_set_am_recv_handler(worker_, &handler));
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) library_.worker_destroy(worker_);
  if (context_ != nullptr) library_.cleanup(context_);
}

void UcxWorker::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) library_.worker_progress(worker_);
}

}  // namespace narrowcast::channel
