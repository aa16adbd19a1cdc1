#include "bootstrap/tcp_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "bootstrap/background_thread.h"
#include "bootstrap/tcp_hub.h"
#include "status/error.h"

namespace narrowcast::bootstrap {
namespace {

constexpr Limit goodbye_limit = {1};
constexpr Limit answer_limit = {2};  // of a hub that is asked which ranks are missing
constexpr double longest_sleep_seconds = 3600;

double seconds_until(Limit limit, Clock::time_point start) {
  if (limit.seconds <= 0) return longest_sleep_seconds;
  const double left = limit.seconds - std::chrono::duration<double>(Clock::now() - start).count();
  return std::clamp(left, 0.0, longest_sleep_seconds);
}

int milliseconds_until(Limit limit, Clock::time_point start) {
  return static_cast<int>(seconds_until(limit, start) * 1000) + 1;
}

Hello make_hello(const WorldId& secret, int rank, int ranks) {
  Hello hello = {{}, secret, protocol_version, rank, ranks, is_hub_here(secret) ? 1U : 0U, getpid(), {}};
  std::copy(std::begin(hello_magic), std::end(hello_magic), hello.magic);
  char host[HOST_NAME_MAX + 1] = "?";
  static_cast<void>(gethostname(host, sizeof host));
  std::copy_n(host, sizeof hello.host, hello.host);  // cut
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
  if (address_bytes == 0) return fail(NCAST_INVALID_ARGUMENT, "the unique id holds no address");
  Descriptor& socket = connection_.socket;
  if (!socket.open([&] { return ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); })) {
    return fail(NCAST_SYSTEM_ERROR, "cannot make a socket: %s", std::strerror(errno));
  }
  int error = ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), address_bytes) == 0 ? 0 : errno;
  while (error == EINPROGRESS || error == EINTR) {
    if (limit_.passed(start)) {
      return fail(NCAST_TIMEOUT, "rank %d could not reach the maker of the unique id at %s within %g s", rank_,
                  hub_.text().c_str(), limit_.seconds);
    }
    pollfd event = {socket.get(), POLLOUT, 0};
    if (poll(&event, 1, milliseconds_until(limit_, start)) <= 0) continue;
    socklen_t bytes = sizeof error;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  }
  if (error == ECONNREFUSED || error == ECONNRESET) {
    return fail(NCAST_REMOTE_ERROR,
                "nobody listens at %s: the process that made the unique id (pid %u) has ended, or "
                "its ranks have met already",
                hub_.text().c_str(), hub_.pid);
  }
  if (error != 0) {
    return fail(NCAST_SYSTEM_ERROR, "rank %d cannot reach the maker of the unique id at %s: %s", rank_,
                hub_.text().c_str(), std::strerror(error));
  }
  set_up_socket(socket.get());
  connection_.allow_payload(std::max(largest_short_message, Rendezvous::max_round_bytes));
  return NCAST_OK;
}

ncast_status TcpWatcher::join(const WorldId& secret) {
  const auto start = Clock::now();
  if (ncast_status status = connect(start)) return status;
  if (!wake_.open([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
    return fail(NCAST_SYSTEM_ERROR, "cannot make an eventfd: %s", std::strerror(errno));
  }
  send(MessageKind::hello, to_payload(make_hello(secret, rank_, ranks_)));
  if (ncast_status status = start_quiet_thread("ncast-watcher", [this] { run(); }, &thread_)) return status;
  std::unique_lock lock(mutex_);
  // A peer may join, work and fail before this thread has noticed that all were there.
  const ncast_status status = wait_or_give_up(lock, start, [this] { return welcomed_; });
  return welcomed_ ? NCAST_OK : status;
}

ncast_status TcpWatcher::exchange(const void* mine, size_t bytes, void* all) {
  const auto start = Clock::now();
  const char* first = static_cast<const char*>(mine);
  Payload blob = bytes == 0 ? nullptr : std::make_shared<const std::vector<char>>(first, first + bytes);
  std::unique_lock lock(mutex_);
  if (ncast_status status = check_failure_locked()) return status;
  exchanging_ = true;
  exchanged_ = false;
  refusal_ = {};
  expected_bytes_ = bytes * static_cast<size_t>(ranks_);
  send(MessageKind::gather, std::move(blob));
  const ncast_status status = wait_or_give_up(lock, start, [this] { return exchanged_ || ended_; });
  exchanging_ = false;
  if (exchanged_ && refusal_.status != NCAST_OK) {
    return fail(static_cast<ncast_status>(refusal_.status), "%s", refusal_.sentence);
  }
  if (exchanged_) {
    if (expected_bytes_ != 0) std::memcpy(all, gathered_.data(), expected_bytes_);
    gathered_ = {};
    return NCAST_OK;
  }
  if (status != NCAST_OK) return status;
  if (ncast_status failed = check_failure_locked()) return failed;
  // The hub had leave to end.
  return fail(NCAST_REMOTE_ERROR, "rank %d, in whose process the ranks meet, left; an all_gather still needs it",
              rank_beside_hub_);
}

// Whether it is done by the limit.
template <typename Done>
bool TcpWatcher::wait(std::unique_lock<std::mutex>& lock, Limit limit, Done done) {
  const auto start = Clock::now();
  while (!done() && !limit.passed(start)) {
    changed_.wait_for(lock, std::chrono::duration<double>(seconds_until(limit, start)));
  }
  return done();
}

// Until `done` or a failure. At the deadline the hub is asked who is missing: its answer is a failure too.
template <typename Done>
ncast_status TcpWatcher::wait_or_give_up(std::unique_lock<std::mutex>& lock, Clock::time_point start, Done done) {
  const auto over = [&] { return done() || failure_ != NCAST_OK; };
  const Limit limit = limit_;
  Limit left = limit;
  if (limit.seconds > 0) {
    const double passed_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    left.seconds = std::max(limit.seconds - passed_seconds, 1e-3);
  }
  if (!wait(lock, left, over)) {
    send(MessageKind::gave_up, to_payload(limit.seconds));
    if (!wait(lock, answer_limit, over)) {
      // It is stuck, or its host is.
      char sentence[Rendezvous::sentence_bytes];
      std::snprintf(sentence, sizeof sentence, "rank %d waited %g s for the process that made the unique id, %s", rank_,
                    limit.seconds, hub_name().c_str());
      publish_locked(NCAST_TIMEOUT, sentence);
    }
  }
  return done() ? NCAST_OK : check_failure_locked();
}

void TcpWatcher::set_limit(Limit limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
}

void TcpWatcher::publish_failure(ncast_status status, const char* sentence) {
  const std::lock_guard lock(mutex_);
  publish_locked(status, sentence);
}

void TcpWatcher::publish_locked(ncast_status status, const char* sentence) {
  if (failure_ != NCAST_OK || status == NCAST_OK) return;
  learn(make_failure(status, rank_, sentence));
  send(MessageKind::failure, to_payload(make_failure(status, rank_, sentence)));
}

ncast_status TcpWatcher::check_failure() const {
  const std::lock_guard lock(mutex_);
  return check_failure_locked();
}

ncast_status TcpWatcher::check_failure_locked() const {
  return failure_ == NCAST_OK ? NCAST_OK : fail(failure_, "%s", failure_sentence_);
}

void TcpWatcher::set_handler(Handler handler) {
  const std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
  wake();
}

void TcpWatcher::send(MessageKind kind, Payload payload) {
  outbox_.emplace_back(kind, std::move(payload));
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

// One turn; false at the end.
bool TcpWatcher::serve() {
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [kind, payload] : outbox_) connection_.queue(kind, 0, std::move(payload));
    outbox_.clear();
    leaving = leaving_;
    if (leaving && !said_goodbye_) connection_.queue(MessageKind::goodbye, 0);
    said_goodbye_ = leaving;
  }
  // A failure to write is found again by reading, which also finds what the hub said before.
  static_cast<void>(connection_.write_some());
  if (leaving && (!connection_.socket || goodbye_limit.passed(leaving_since_))) return false;
  pollfd events[2] = {connection_.wanted_events(), {wake_.get(), POLLIN, 0}};
  poll(events, 2, leaving ? milliseconds_until(goodbye_limit, leaving_since_) : -1);
  uint64_t wakes = 0;
  static_cast<void>(read(wake_.get(), &wakes, sizeof wakes));
  if (events[0].revents == 0) return true;
  std::vector<Message> messages;
  const bool open = connection_.read_some(&messages);
  bool understood = true;
  for (Message& message : messages) understood = understood && receive(message);
  if (!understood) {
    connection_ended(EBADMSG);
  } else if (!open) {
    connection_ended(connection_.error());
  }
  return true;
}

// False when a hub does not say such things.
bool TcpWatcher::receive(Message& message) {
  const std::lock_guard lock(mutex_);
  const bool awaited = exchanging_ && !exchanged_;
  bool understood = true;
  switch (message.header.kind) {
    case MessageKind::welcome:
      welcomed_ = true;
      rank_beside_hub_ = message.header.value;
      break;
    case MessageKind::gathered:
      if (!awaited) break;
      understood = exchanged_ = message.payload.size() == expected_bytes_;
      gathered_ = std::move(message.payload);
      break;
    case MessageKind::refused:
      if (!awaited) break;
      refusal_ = read_failure(message.payload);
      exchanged_ = true;
      break;
    case MessageKind::failure: learn(read_failure(message.payload)); break;
    case MessageKind::hub_may_end: hub_may_end_ = true; break;
    default: understood = false;
  }
  changed_.notify_all();
  return understood;
}

void TcpWatcher::connection_ended(int error) {
  connection_.socket.close();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
  if (leaving_ || hub_may_end_) return;
  char sentence[Rendezvous::sentence_bytes];
  const bool closed = error == 0 || error == ECONNRESET || error == EPIPE;
  const char* why = closed ? "it ended" : std::strerror(error);
  if (error == EBADMSG) {
    std::snprintf(sentence, sizeof sentence, "what listens at %s is no rendezvous of this library",
                  hub_.text().c_str());
  } else if (!welcomed_ && closed) {
    std::snprintf(sentence, sizeof sentence, "the process that made the unique id, %s, ended or does not know the id",
                  hub_name().c_str());
  } else if (rank_beside_hub_ >= 0) {
    std::snprintf(sentence, sizeof sentence, "rank %d died: its process made the unique id, %s: %s", rank_beside_hub_,
                  hub_name().c_str(), why);
  } else {
    std::snprintf(sentence, sizeof sentence, "lost the process that made the unique id, %s: %s", hub_name().c_str(),
                  why);
  }
  learn(make_failure(NCAST_REMOTE_ERROR, FailureMessage::from_hub, sentence));
}

// Only the first counts.
void TcpWatcher::learn(const FailureMessage& news) {
  if (failure_ != NCAST_OK) return;
  const auto status = static_cast<ncast_status>(news.status);
  failure_is_mine_ = news.rank == rank_;
  if (failure_is_mine_ || news.rank == FailureMessage::from_hub) {
    failure_ = status;
    std::snprintf(failure_sentence_, sizeof failure_sentence_, "%s", news.sentence);
  } else if (status == NCAST_ABORTED) {
    failure_ = status;
    std::snprintf(failure_sentence_, sizeof failure_sentence_, "rank %d aborted the communicator", news.rank);
  } else {
    failure_ = status == NCAST_MISMATCH ? NCAST_MISMATCH : NCAST_REMOTE_ERROR;
    std::snprintf(failure_sentence_, sizeof failure_sentence_, "rank %d reports: %s", news.rank, news.sentence);
  }
  changed_.notify_all();
}

void TcpWatcher::call_handler() {
  Handler handler;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ == NCAST_OK || failure_is_mine_ || handler_called_ || !handler_) return;
    handler_called_ = true;
    handler = std::move(handler_);
  }
  // Nobody writes to these once there is a failure.
  handler(failure_, failure_sentence_);
}

std::string TcpWatcher::hub_name() const { return "pid " + std::to_string(hub_.pid) + " at " + hub_.text(); }

}  // namespace narrowcast::bootstrap
