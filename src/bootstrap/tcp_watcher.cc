#include "bootstrap/tcp_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bootstrap/background_thread.h"
#include "bootstrap/host.h"
#include "bootstrap/interrupt.h"
#include "bootstrap/peer_failure.h"
#include "bootstrap/shared_memory.h"
#include "bootstrap/tcp_hub_server.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::bootstrap {
namespace {

constexpr Limit goodbye_limit = {1};
constexpr Limit hub_answer_limit = {2};  // for the hub to answer which ranks are missing
constexpr double longest_sleep_seconds = 3600;

double seconds_until(Limit limit, Clock::time_point start) {
  if (limit.seconds <= 0) return longest_sleep_seconds;
  const double left = limit.seconds - std::chrono::duration<double>(Clock::now() - start).count();
  return std::clamp(left, 0.0, longest_sleep_seconds);
}

// How long a thread that can be interrupted may sleep.
std::chrono::duration<double> slice_until(Limit limit, Clock::time_point start) {
  return std::min(std::chrono::duration<double>(seconds_until(limit, start)),
                  std::chrono::duration<double>(interrupt_interval));
}

int milliseconds_until(Limit limit, Clock::time_point start) {
  return static_cast<int>(seconds_until(limit, start) * 1000) + 1;
}

Payload blob_of(const void* bytes, size_t count) {
  const char* const first = static_cast<const char*>(bytes);
  return count == 0 ? nullptr : std::make_shared<const std::vector<char>>(first, first + count);
}

Hello make_hello(const WorldId& secret, int rank, int ranks) {
  Hello hello = {{}, protocol_version, rank, {}, {}, ranks, is_hub_running(secret) ? 1U : 0U, getpid(), {}};
  std::copy(std::begin(hello_magic), std::end(hello_magic), hello.magic);
  const std::string host = host_name();
  std::copy_n(host.data(), std::min(host.size(), sizeof hello.host), hello.host);  // truncates
  return hello;
}

}  // namespace

TcpWatcher::TcpWatcher(const TcpAddress& hub, int rank, int ranks, Limit limit)
    : hub_(hub), rank_(rank), ranks_(ranks), pid_(getpid()), limit_(limit) {}

TcpWatcher::~TcpWatcher() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    leaving_since_ = Clock::now();
    wake();
  }
  thread_.join();
}

bool TcpWatcher::forked() const { return getpid() != pid_; }

ncast_status TcpWatcher::connect(Clock::time_point start) {
  sockaddr_storage address;
  const socklen_t address_bytes = hub_.socket_address(&address);
  if (address_bytes == 0) return fail(NCAST_INVALID_ARGUMENT, "the unique id contains no address");
  Descriptor& socket = connection_.socket;
  if (!socket.open([&] { return ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); })) {
    return fail(NCAST_SYSTEM_ERROR, "cannot make a socket: %s", system_error_text(errno).c_str());
  }
  int error = ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), address_bytes) == 0 ? 0 : errno;
  while (error == EINPROGRESS || error == EINTR) {
    if (limit_.passed(start)) {
      return fail(NCAST_TIMEOUT,
                  "rank %d could not connect to the process that created the unique id, at %s, within %g s", rank_,
                  hub_.text().c_str(), limit_.seconds);
    }
    if (is_interrupted()) return interrupted();
    pollfd event = {socket.get(), POLLOUT, 0};
    const auto sleep = std::chrono::ceil<std::chrono::milliseconds>(slice_until(limit_, start));
    if (poll(&event, 1, static_cast<int>(sleep.count())) <= 0) continue;
    socklen_t bytes = sizeof error;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  }
  if (error == ECONNREFUSED || error == ECONNRESET) {
    return fail(NCAST_REMOTE_ERROR,
                "nothing listens at %s: the process that created the unique id (pid %u) has ended, or a communicator "
                "with this id already exists",
                hub_.text().c_str(), hub_.pid);
  }
  if (error != 0) {
    return fail(NCAST_SYSTEM_ERROR, "rank %d cannot connect to the process that created the unique id, at %s: %s",
                rank_, hub_.text().c_str(), std::strerror(error));
  }
  set_up_socket(socket.get());
  connection_.allow_payload(std::max(largest_short_message, Rendezvous::max_round_bytes));
  return NCAST_OK;
}

ncast_status TcpWatcher::join(const WorldId& secret) {
  const auto start = Clock::now();
  if (ncast_status status = connect(start)) return status;
  if (!wake_.open([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
    return fail(NCAST_SYSTEM_ERROR, "cannot make an eventfd: %s", system_error_text(errno).c_str());
  }
  secret_ = secret;
  if (ncast_status status = start_background_thread("ncast-watcher", [this] { run(); }, &thread_)) return status;
  std::unique_lock lock(mutex_);
  // Joining has succeeded even if a peer has failed since: it may fail before this thread wakes up.
  return wait_or_time_out(lock, start, [this] { return welcomed_; });
}

ncast_status TcpWatcher::exchange(const void* mine, size_t bytes, void* all) {
  const auto start = Clock::now();
  Payload blob = blob_of(mine, bytes);
  std::unique_lock lock(mutex_);
  if (ncast_status status = check_failure_locked()) return status;
  exchanging_ = true;
  exchanged_ = false;
  refusal_ = {};
  expected_bytes_ = bytes * static_cast<size_t>(ranks_);
  send(MessageKind::gather, std::move(blob));
  const ncast_status status = wait_or_time_out(lock, start, [this] { return exchanged_ || ended_; });
  exchanging_ = false;
  if (status != NCAST_OK) return status;
  if (exchanged_ && refusal_.status != NCAST_OK) {
    return fail(static_cast<ncast_status>(refusal_.status), "%s", refusal_.text);
  }
  if (exchanged_) {
    if (expected_bytes_ != 0) std::memcpy(all, gathered_.data(), expected_bytes_);
    gathered_ = {};
    return NCAST_OK;
  }
  if (ncast_status failed = check_failure_locked()) return failed;
  // The connection was closed without a failure, as the hub had announced.
  return fail(NCAST_REMOTE_ERROR, "rank %d, whose process runs the rendezvous, left before an all_gather that needs it",
              rank_in_hub_process_);
}

ncast_status TcpWatcher::exchange_with(int peer, const void* mine, size_t bytes, void* theirs) {
  Payload blob = blob_of(mine, bytes);
  std::unique_lock lock(mutex_);
  if (ncast_status status = check_failure_locked()) return status;
  Pair& pair = pairs_[peer];
  send(MessageKind::to_peer, std::move(blob), peer);
  const auto done = [&] { return !pair.received.empty() || pair.has_left || ended_ || failure_ != NCAST_OK; };
  const Limit limit = limit_;
  bool stopped = false;
  if (!wait(lock, limit, done, &stopped) && !stopped) {
    char message[Rendezvous::failure_message_bytes];
    std::snprintf(message, sizeof message, "rank %d waited %g s for rank %d to connect", rank_, limit.seconds, peer);
    publish_locked(NCAST_TIMEOUT, message);
  }
  if (pair.received.empty()) {
    if (ncast_status status = check_failure_locked()) return status;
    // Otherwise the connection was closed without a failure, as the hub had announced.
    return fail(NCAST_REMOTE_ERROR, "rank %d cannot connect to rank %d, because rank %d has left", rank_, peer,
                pair.has_left ? peer : rank_in_hub_process_);
  }
  const std::vector<char> received = std::move(pair.received.front());
  pair.received.pop_front();
  if (received.size() == bytes) {
    std::copy(received.begin(), received.end(), static_cast<char*>(theirs));
    return NCAST_OK;
  }
  char message[Rendezvous::failure_message_bytes];
  std::snprintf(message, sizeof message, "rank %d sends %zu bytes to rank %d, which sends %zu", peer, received.size(),
                rank_, bytes);
  publish_locked(NCAST_MISMATCH, message);
  return check_failure_locked();
}

// Waits until `done` or the limit. Returns whether it is done. An interruption ends the wait and is a failure of this
// rank.
template <typename Done>
bool TcpWatcher::wait(std::unique_lock<std::mutex>& lock, Limit limit, Done done, bool* stopped) {
  const auto start = Clock::now();
  while (!done() && !limit.passed(start)) {
    changed_.wait_for(lock, slice_until(limit, start));
    lock.unlock();
    *stopped = is_interrupted();
    lock.lock();
    if (!*stopped) continue;
    const ncast_status status = interrupted();
    publish_locked(status, ncast_last_error());
    return false;
  }
  return done();
}

// Waits until `done` or a failure. At the deadline it tells the hub, which answers with a failure that names the
// missing ranks.
template <typename Done>
ncast_status TcpWatcher::wait_or_time_out(std::unique_lock<std::mutex>& lock, Clock::time_point start, Done done) {
  const auto finished = [&] { return done() || failure_ != NCAST_OK; };
  const Limit limit = limit_;
  Limit left = limit;
  if (limit.seconds > 0) {
    const double passed_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    left.seconds = std::max(limit.seconds - passed_seconds, 1e-3);
  }
  bool stopped = false;
  if (!wait(lock, left, finished, &stopped) && !stopped) {
    send(MessageKind::timed_out, to_payload(limit.seconds));
    if (!wait(lock, hub_answer_limit, finished, &stopped) && !stopped) {
      // The hub's process or host hangs.
      char message[Rendezvous::failure_message_bytes];
      std::snprintf(message, sizeof message, "rank %d waited %g s for the process that created the unique id, %s",
                    rank_, limit.seconds, hub_name().c_str());
      publish_locked(NCAST_TIMEOUT, message);
    }
  }
  return done() && !stopped ? NCAST_OK : check_failure_locked();
}

void TcpWatcher::set_limit(Limit limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
}

void TcpWatcher::publish_failure(ncast_status status, const char* message) {
  const std::lock_guard lock(mutex_);
  publish_locked(status, message);
}

void TcpWatcher::publish_locked(ncast_status status, const char* message) {
  if (failure_ != NCAST_OK || status == NCAST_OK) return;
  record_failure(make_failure(status, rank_, message));
  send(MessageKind::failure, to_payload(make_failure(status, rank_, message)));
}

ncast_status TcpWatcher::check_failure() const {
  const std::lock_guard lock(mutex_);
  return check_failure_locked();
}

ncast_status TcpWatcher::check_failure_locked() const {
  return failure_ == NCAST_OK ? NCAST_OK : fail(failure_, "%s", failure_message_);
}

void TcpWatcher::set_handler(Handler handler) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !handler_runs_; });
  handler_ = std::move(handler);
  wake();
}

void TcpWatcher::send(MessageKind kind, Payload payload, int32_t value) {
  outbox_.push_back({kind, value, std::move(payload)});
  wake();
}

void TcpWatcher::wake() {
  const uint64_t one = 1;
  static_cast<void>(write(wake_.get(), &one, sizeof one));
}

void TcpWatcher::run() {
  try {
    while (serve()) call_handler();
  } catch (...) {
    connection_ended(ENOMEM);
  }
}

// One turn of the thread's loop. Returns false when the thread should end.
bool TcpWatcher::serve() {
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [kind, value, payload] : outbox_) connection_.queue(kind, value, std::move(payload));
    outbox_.clear();
    leaving = leaving_;
    if (leaving && !goodbye_queued_) connection_.queue(MessageKind::goodbye, 0);
    goodbye_queued_ = leaving;
  }
  // Write errors are ignored here: reading reports them, after the messages that the hub sent before.
  static_cast<void>(connection_.write_some());
  if (leaving && (!connection_.socket || goodbye_limit.passed(leaving_since_))) return false;
  pollfd events[2] = {connection_.wanted_events(), {wake_.get(), POLLIN, 0}};
  poll(events, 2, leaving ? milliseconds_until(goodbye_limit, leaving_since_) : -1);
  uint64_t wakes = 0;
  static_cast<void>(read(wake_.get(), &wakes, sizeof wakes));
  if (events[0].revents == 0) return true;
  std::vector<Message> messages;
  const bool open = connection_.read_some(&messages);
  bool valid = true;
  for (Message& message : messages) valid = valid && receive(message);
  if (!valid) {
    connection_ended(EBADMSG);
  } else if (!open) {
    connection_ended(connection_.error());
  }
  return true;
}

// Returns false if the message is invalid.
bool TcpWatcher::receive(Message& message) {
  const std::lock_guard lock(mutex_);
  const bool expected = exchanging_ && !exchanged_;
  bool valid = true;
  switch (message.header.kind) {
    case MessageKind::challenge: valid = answer_challenge(message); break;
    case MessageKind::welcome:
      valid = welcomed_ = answered_ && message.payload.size() == sizeof(Proof) &&
                          is_same(from_payload<Proof>(message.payload), expected_proof_);
      rank_in_hub_process_ = message.header.value;
      break;
    case MessageKind::gathered:
      if (!expected) break;
      valid = exchanged_ = message.payload.size() == expected_bytes_;
      gathered_ = std::move(message.payload);
      break;
    case MessageKind::gather_refused:
      if (!expected) break;
      refusal_ = read_failure(message.payload);
      exchanged_ = true;
      break;
    case MessageKind::to_peer: pairs_[message.header.value].received.push_back(std::move(message.payload)); break;
    case MessageKind::peer_left: pairs_[message.header.value].has_left = true; break;
    case MessageKind::failure: record_failure(read_failure(message.payload)); break;
    case MessageKind::hub_may_end: hub_may_end_ = true; break;
    default: valid = false;
  }
  changed_.notify_all();
  return valid;
}

// Returns false if the listener is no hub.
bool TcpWatcher::answer_challenge(const Message& message) {
  const auto challenge = from_payload<HubChallenge>(message.payload);
  if (answered_ || message.payload.size() != sizeof challenge ||
      !std::equal(std::begin(hello_magic), std::end(hello_magic), challenge.magic))
    return false;
  Hello hello = make_hello(secret_, rank_, ranks_);
  if (ncast_status status = random_bytes(&hello.challenge, sizeof hello.challenge)) {
    record_failure(make_failure(status, rank_, ncast_last_error()));
    return true;
  }
  hello.proof = prove_hello(secret_, challenge.challenge, bytes_of(hello));
  expected_proof_ = prove_welcome(secret_, challenge.challenge, hello.challenge);
  answered_ = true;
  send(MessageKind::hello, to_payload(hello));
  return true;
}

void TcpWatcher::connection_ended(int error) {
  connection_.socket.close();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
  if (leaving_ || hub_may_end_) return;
  char message[Rendezvous::failure_message_bytes];
  const bool closed = error == 0 || error == ECONNRESET || error == EPIPE;
  const char* why = closed ? "it has ended" : std::strerror(error);
  if (error == EBADMSG) {
    std::snprintf(message, sizeof message, "the process that listens at %s is not a rendezvous of this library",
                  hub_.text().c_str());
  } else if (!welcomed_ && closed) {
    std::snprintf(message, sizeof message,
                  "the process that created the unique id, %s, has ended or does not know the id, which is used once",
                  hub_name().c_str());
  } else if (rank_in_hub_process_ >= 0) {
    std::snprintf(message, sizeof message, "rank %d died: its process created the unique id, %s: %s",
                  rank_in_hub_process_, hub_name().c_str(), why);
  } else {
    std::snprintf(message, sizeof message, "lost the connection to the process that created the unique id, %s: %s",
                  hub_name().c_str(), why);
  }
  record_failure(make_failure(NCAST_REMOTE_ERROR, FailureMessage::from_hub, message));
}

// Keeps the first failure only.
void TcpWatcher::record_failure(const FailureMessage& failure) {
  if (failure_ != NCAST_OK) return;
  const auto status = static_cast<ncast_status>(failure.status);
  failure_is_mine_ = failure.rank == rank_;
  if (failure_is_mine_ || failure.rank == FailureMessage::from_hub) {
    failure_ = status;
    std::snprintf(failure_message_, sizeof failure_message_, "%s", failure.text);
  } else if (status == NCAST_ABORTED) {
    failure_ = status;
    std::snprintf(failure_message_, sizeof failure_message_, "rank %d aborted the communicator", failure.rank);
  } else {
    failure_ = status_at_peers(status);
    std::snprintf(failure_message_, sizeof failure_message_, "rank %d reports: %s", failure.rank, failure.text);
  }
  changed_.notify_all();
}

void TcpWatcher::call_handler() {
  Handler handler;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ == NCAST_OK || failure_is_mine_ || handler_called_ || !handler_) return;
    handler_called_ = handler_runs_ = true;
    handler = std::move(handler_);
  }
  // No lock: these do not change after the first failure.
  handler(failure_, failure_message_);
  const std::lock_guard lock(mutex_);
  handler_runs_ = false;
  changed_.notify_all();
}

std::string TcpWatcher::hub_name() const { return "pid " + std::to_string(hub_.pid) + " at " + hub_.text(); }

}  // namespace narrowcast::bootstrap
