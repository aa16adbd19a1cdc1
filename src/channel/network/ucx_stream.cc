#include "channel/network/ucx_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "bootstrap/shared_memory.h"
#include "channel/network/idle_pause.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// For UCX to end operations with a peer that may be dead.
constexpr bootstrap::Limit closing_limit{1};
// For UCX to send what it has taken. The peer has had time before, and over TCP its answer is waited for, which it does
// not give when its threads have ended, too.
constexpr bootstrap::Limit flushing_limit{0.2};

}  // namespace

struct UcxStream::Operation {
  std::atomic<ucx::Status> status{ucx::ok};
  const UcxLibrary* library = nullptr;

  ucx::RequestParameters begin(const UcxLibrary& of, ucx::Memory memory) {
    using Parameters = ucx::RequestParameters;
    status = ucx::in_progress;
    library = &of;
    Parameters parameters = {};
    parameters.mask =
        Parameters::with_callback | Parameters::with_argument | Parameters::with_memory_type | Parameters::with_memory;
    parameters.argument = this;
    parameters.memory_type = ucx::host_memory;
    parameters.memory = memory;
    return parameters;
  }
  // result: of the call with these parameters.
  ucx::Status begun(ucx::StatusOrRequest result) {
    const ucx::Status now = ucx::status_of(result);
    if (now != ucx::in_progress) status = now;
    return now;
  }
  void end(void* request, ucx::Status with) {
    library->request_free(request);
    status = with;
  }
};

struct UcxStream::Arrival {
  void* data;  // of UCX: to be released, unless it is fetched
  size_t bytes;
  bool is_rendezvous;  // to be fetched to the chunk of its number
  Operation fetch;
};

// All that UCX accesses while operations are in progress.
struct UcxStream::State {
  struct Direction {
    Chunks memory;
    ucx::Memory registered = nullptr;
  };
  struct Sent {
    UcxWorker::Header header;
    Operation operation;
  };

  const std::shared_ptr<UcxWorker> worker;
  std::atomic<ucx::Status> endpoint{ucx::ok};
  Direction outgoing, incoming;
  std::array<Sent, chunks> sent;
  std::map<uint64_t, Arrival> arrivals;

  explicit State(std::shared_ptr<UcxWorker> of) : worker(std::move(of)) {}

  ncast_status prepare(Direction& direction) const {
    if (ncast_status status = direction.memory.allocate()) return status;
    using Parameters = ucx::MemoryParameters;
    const Parameters parameters = {Parameters::with_address | Parameters::with_bytes | Parameters::with_memory_type,
                                   direction.memory.all(),
                                   Chunks::bytes,
                                   0,
                                   0,
                                   ucx::host_memory};
    const UcxLibrary& library = worker->library();
    const ucx::Status status = library.mem_map(worker->context(), &parameters, &direction.registered);
    return status == ucx::ok ? NCAST_OK
                             : fail(NCAST_SYSTEM_ERROR, "%s", library.failure("ucp_mem_map", status).c_str());
  }
  bool is_in_use() const {
    const auto is_busy = [](const Operation& operation) { return operation.status == ucx::in_progress; };
    return std::ranges::any_of(sent, [&](const Sent& one) { return is_busy(one.operation); }) ||
           std::ranges::any_of(arrivals, [&](const auto& one) { return is_busy(one.second.fetch); });
  }
  // With the lock, if it is not in use: what belongs to UCX.
  void give_back() {
    const UcxLibrary& library = worker->library();
    for (auto& [number, arrival] : arrivals)
      if (arrival.fetch.library == nullptr) library.am_data_release(worker->get(), arrival.data);
    for (const Direction* direction : {&outgoing, &incoming})
      if (direction->registered != nullptr) library.mem_unmap(worker->context(), direction->registered);
  }
};

UcxStream::UcxStream(std::shared_ptr<UcxWorker> worker, std::unique_ptr<bootstrap::Connection> connection)
    : MessageStream(std::move(connection)), worker_(std::move(worker)), state_(std::make_unique<State>(worker_)) {}

UcxStream::~UcxStream() {
  shut_down();
  if (endpoint_ != nullptr) {
    ucx::RequestParameters parameters = {};
    if (has_ended_first() && state_->endpoint == ucx::ok)
      wait_for(flushing_limit, [&] { return library().ep_flush(endpoint_, &parameters); });
    parameters.mask = ucx::RequestParameters::with_flags;
    parameters.flags = ucx::RequestParameters::force_close;
    wait_for(closing_limit, [&] { return library().ep_close(endpoint_, &parameters); });
  }
  const std::lock_guard lock(worker_->mutex());
  worker_->remove(key_);
  if (!state_->is_in_use()) {
    state_->give_back();
  } else {
    State* const kept = state_.release();  // what UCX has not ended may still access it
    static_cast<void>(kept);
  }
}

// Begins an operation, and waits for its end.
template <typename Begin>
void UcxStream::wait_for(bootstrap::Limit limit, Begin&& begin) {
  std::unique_lock lock(worker_->mutex());
  const ucx::StatusOrRequest result = begin();
  if (ucx::status_of(result) != ucx::in_progress) return;
  const bootstrap::Clock::time_point start = bootstrap::Clock::now();
  for (IdlePause pause; library().request_check_status(result) == ucx::in_progress && !limit.passed(start);) {
    lock.unlock();
    pause.wait();
    worker_->progress();
    lock.lock();
  }
  library().request_free(result);
}

int UcxStream::check(const char* function, ucx::Status status) {
  return status >= ucx::ok ? 0 : failed(library().failure(function, status));
}

// --- connecting -----------------------------------------------------------------------------------------------------

ncast_status UcxStream::listen(std::string* place) {
  if (ncast_status status = bootstrap::random_bytes(&key_, sizeof key_)) return status;
  const std::lock_guard lock(worker_->mutex());
  if (ncast_status status = state_->prepare(state_->outgoing)) return status;
  if (ncast_status status = state_->prepare(state_->incoming)) return status;
  worker_->add(key_, this);
  place->assign(reinterpret_cast<const char*>(&key_), sizeof key_);
  place->append(worker_->address());
  return NCAST_OK;
}

ncast_status UcxStream::open(std::string_view place, bool* opened) {
  if (place.size() <= sizeof key_of_peer_) return fail(NCAST_CORRUPT, "what it sent is not valid");
  std::memcpy(&key_of_peer_, place.data(), sizeof key_of_peer_);
  using Parameters = ucx::EndpointParameters;
  const Parameters parameters = {
      Parameters::with_address | Parameters::with_error_mode | Parameters::with_error_handler,
      place.data() + sizeof key_of_peer_, Parameters::peer_may_fail,
      [](void* state, ucx::Endpoint, ucx::Status status) { static_cast<State*>(state)->endpoint = status; },
      state_.get()};
  const std::lock_guard lock(worker_->mutex());
  if (const ucx::Status status = library().ep_create(worker_->get(), &parameters, &endpoint_))
    return fail(NCAST_SYSTEM_ERROR, "%s", library().failure("ucp_ep_create", status).c_str());
  *opened = true;
  return NCAST_OK;
}

// --- sending --------------------------------------------------------------------------------------------------------

char* UcxStream::outgoing_chunk(uint64_t number) { return state_->outgoing.memory.chunk(number); }

int UcxStream::begin_send(uint64_t number, size_t bytes, bool* begun) {
  State::Sent& sent = state_->sent[number % chunks];
  sent.header = {key_of_peer_, number};
  ucx::Status status = state_->endpoint;
  if (status == ucx::ok) {
    const std::lock_guard lock(worker_->mutex());
    ucx::RequestParameters parameters = sent.operation.begin(library(), state_->outgoing.registered);
    parameters.callback.sent = [](void* request, ucx::Status with, void* operation) {
      static_cast<Operation*>(operation)->end(request, with);
    };
    status = sent.operation.begun(library().am_send(endpoint_, UcxWorker::message_id, &sent.header, sizeof sent.header,
                                                    outgoing_chunk(number), bytes, &parameters));
  }
  *begun = status >= ucx::ok;
  return check("ucp_am_send_nbx", status);
}

int UcxStream::poll_sent(uint64_t number, bool* sent) {
  const std::atomic<ucx::Status>& status = state_->sent[number % chunks].operation.status;
  if (status == ucx::in_progress) worker_->progress();
  *sent = status == ucx::ok;
  return check("ucp_am_send_nbx", status);
}

// --- receiving ------------------------------------------------------------------------------------------------------

// With the lock of the worker.
ucx::Status UcxStream::arrive(uint64_t number, void* data, size_t bytes, bool is_rendezvous) {
  const auto [arrival, is_new] = state_->arrivals.try_emplace(number);
  if (!is_new) return ucx::ok;
  arrival->second.data = data;
  arrival->second.bytes = bytes;
  arrival->second.is_rendezvous = is_rendezvous;
  ++arrivals_;
  return ucx::in_progress;
}

// Finds the next message, and fetches those after it for which there is a chunk.
void UcxStream::find_next() {
  const std::lock_guard lock(worker_->mutex());
  seen_arrivals_ = arrivals_;
  auto& arrivals = state_->arrivals;
  for (auto at = arrivals.lower_bound(next_number_); at != arrivals.end() && at->first < next_number_ + chunks; ++at) {
    Arrival& arrival = at->second;
    if (at->first == next_number_) next_ = &arrival;
    if (!arrival.is_rendezvous || arrival.fetch.library != nullptr || arrival.bytes > chunk_bytes) continue;
    ucx::RequestParameters parameters = arrival.fetch.begin(library(), state_->incoming.registered);
    parameters.callback.received = [](void* request, ucx::Status with, size_t, void* operation) {
      static_cast<Operation*>(operation)->end(request, with);
    };
    arrival.fetch.begun(library().am_receive(worker_->get(), arrival.data, state_->incoming.memory.chunk(at->first),
                                             arrival.bytes, &parameters));
  }
}

int UcxStream::poll_arrived(const char** data, size_t* bytes) {
  if (next_ == nullptr || next_->fetch.status == ucx::in_progress) worker_->progress();
  if (seen_arrivals_ != arrivals_) find_next();
  if (next_ == nullptr) return check("the connection", state_->endpoint);
  const ucx::Status status = next_->fetch.status;
  if (status == ucx::ok) {
    *data = next_->is_rendezvous ? state_->incoming.memory.chunk(next_number_) : static_cast<char*>(next_->data);
    *bytes = next_->bytes;
  }
  return check("ucp_am_recv_data_nbx", status);
}

void UcxStream::release_arrived() {
  const std::lock_guard lock(worker_->mutex());
  if (!next_->is_rendezvous) library().am_data_release(worker_->get(), next_->data);
  state_->arrivals.erase(next_number_++);
  next_ = nullptr;
  seen_arrivals_ = 0;  // others that have arrived are to be seen again
}

}  // namespace narrowcast::channel
