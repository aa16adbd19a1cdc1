#include "bootstrap/tcp_hub.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "status/error.h"

namespace narrowcast::bootstrap {
namespace {

constexpr size_t max_strangers = 256;
constexpr int accepted_a_turn = 64;     // fewer, so that each is heard before others can push it out
constexpr Limit stranger_limit = {20};  // to say hello, generous: its machine may be loaded
constexpr Limit linger_limit = {60};    // of a hub whose ranks failed to meet, to tell those who come late
constexpr int inspection_milliseconds = 200;

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[Rendezvous::sentence_bytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

std::string name_of(const Hello& hello) {
  char host[sizeof hello.host + 1] = {};
  for (size_t i = 0; i < sizeof hello.host && hello.host[i] > ' '; ++i) host[i] = hello.host[i];
  return text("rank %d (pid %" PRId64 " on %s)", hello.rank, hello.pid, host);
}

}  // namespace

bool Hub::finished() const {
  for (const Member& member : members_) {
    if (member.state == Member::here) return false;
  }
  if (complete_ || (expects_none_ && members_.empty())) return true;
  return failure_ != nullptr ? linger_limit.passed(failed_at_) : unused_.passed(opened_);
}

void Hub::run() {
  while (!finished()) {
    wait_for_events();
    if (has_events_) accept_strangers();
    for (size_t i = 0; i < strangers_.size(); ++i) hear_stranger(strangers_[i]);
    for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) hear_member(rank);
    write_all();
    // Only now, so that the news of a rank are on their way when it sees that it may end its process.
    for (Member& member : members_) {
      if (member.state != Member::here) member.connection.reset();
    }
    std::erase_if(strangers_, [](const Stranger& stranger) {
      return stranger.gone || stranger.connection == nullptr || stranger_limit.passed(stranger.since);
    });
  }
}

void Hub::wait_for_events() {
  std::vector<pollfd> events = {{cannot_accept_ ? -1 : listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  std::vector<Connection*> connections;
  connections.reserve(strangers_.size() + members_.size());
  for (const Stranger& stranger : strangers_) connections.push_back(stranger.connection.get());
  for (const Member& member : members_) {
    if (member.state == Member::here) connections.push_back(member.connection.get());
  }
  const size_t own_events = events.size();
  events.reserve(own_events + connections.size());
  for (const Connection* connection : connections) events.push_back(connection->wanted_events());
  const bool may_end = !complete_ && (failure_ != nullptr || unused_.seconds > 0);
  const bool has_deadline = cannot_accept_ || !strangers_.empty() || may_end;
  poll(events.data(), events.size(), has_deadline ? inspection_milliseconds : -1);
  for (size_t i = 0; i < connections.size(); ++i) connections[i]->has_events = events[i + own_events].revents != 0;
  uint64_t wakes = 0;
  if (events[1].revents != 0) static_cast<void>(read(wake_.get(), &wakes, sizeof wakes));
  has_events_ = cannot_accept_ || events[0].revents != 0;
  cannot_accept_ = false;
}

void Hub::expect_none() {
  expects_none_ = true;
  const uint64_t one = 1;
  static_cast<void>(write(wake_.get(), &one, sizeof one));
}

void Hub::accept_strangers() {
  for (int i = 0; i < accepted_a_turn; ++i) {
    auto connection = std::make_unique<Connection>();
    if (!connection->socket.open(
            [this] { return accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); })) {
      // Others are errors of the connection that was to be accepted.
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      cannot_accept_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!cannot_accept_) continue;
      if (!strangers_.empty()) strangers_.erase(strangers_.begin());
      return;
    }
    set_up_socket(connection->socket.get());
    connection->allow_payload(largest_short_message);
    // Ranks say hello at once, so that the one that has been silent for longest is none.
    if (strangers_.size() == max_strangers) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(connection), Clock::now()});
  }
}

void Hub::hear_stranger(Stranger& stranger) {
  if (!stranger.connection->has_events) return;
  std::vector<Message> messages;
  stranger.gone = !stranger.connection->read_some(&messages);
  if (messages.empty()) return;
  if (stranger.turned_away) {
    stranger.gone = true;  // it has heard, and says goodbye
    return;
  }
  const Message& message = messages.front();
  const auto hello = from_payload<Hello>(message.payload);
  const bool knows_secret = message.header.kind == MessageKind::hello && message.payload.size() >= hello_stable_bytes &&
                            std::equal(std::begin(hello_magic), std::end(hello_magic), hello.magic) &&
                            ((hello.secret[0] ^ secret_[0]) | (hello.secret[1] ^ secret_[1])) == 0;
  if (!knows_secret) {
    stranger.gone = true;
    return;
  }
  admit(stranger, hello, message.payload.size());
  // It may have given up, or left, already.
  if (stranger.connection == nullptr) handle_all(hello.rank, std::span(messages).subspan(1));
}

void Hub::admit(Stranger& stranger, const Hello& hello, size_t hello_bytes) {
  if (hello.version != protocol_version || hello_bytes != sizeof hello) {
    return turn_away(stranger, text("rank %d uses another version of the library than the maker of the unique id "
                                    "(protocol %u and %u)",
                                    hello.rank, hello.version, protocol_version));
  }
  if (hello.ranks < 1 || hello.ranks > Rendezvous::max_ranks || hello.rank < 0 || hello.rank >= hello.ranks) {
    stranger.gone = true;
    return;
  }
  if (members_.empty()) members_.resize(static_cast<size_t>(hello.ranks));
  if (failure_ != nullptr) return turn_away(stranger, "");
  const std::string name = name_of(hello);
  if (members_.size() != static_cast<size_t>(hello.ranks)) {
    return turn_away(
        stranger, text("%s says that there are %d ranks, others say %zu", name.c_str(), hello.ranks, members_.size()));
  }
  Member& member = this->member(hello.rank);
  if (member.state != Member::absent) {
    return turn_away(stranger,
                     text("two callers join as rank %d: %s and %s", hello.rank, member.name.c_str(), name.c_str()));
  }
  member.state = Member::here;
  member.connection = std::move(stranger.connection);
  member.connection->allow_payload(
      std::max(largest_short_message, Rendezvous::max_round_bytes / static_cast<size_t>(hello.ranks)));
  member.name = name;
  member.beside_hub = hello.beside_hub != 0;
  stranger.gone = true;
  complete_ = ++joined_ == hello.ranks;
  if (complete_) tell_all(MessageKind::welcome, rank_beside_hub(), nullptr);
}

// Of somebody who knows the secret but does not fit in. That ends the others too unless they are complete without.
void Hub::turn_away(Stranger& stranger, const std::string& sentence) {
  if (!complete_) fail_group(NCAST_MISMATCH, FailureMessage::from_hub, sentence);
  Payload reason = failure_;
  if (reason == nullptr) {
    reason = to_payload(make_failure(NCAST_MISMATCH, FailureMessage::from_hub, sentence.c_str()));
  }
  stranger.connection->queue(MessageKind::failure, 0, std::move(reason));
  stranger.turned_away = true;
}

void Hub::hear_member(int rank) {
  if (member(rank).state != Member::here || !member(rank).connection->has_events) return;
  std::vector<Message> messages;
  const bool open = member(rank).connection->read_some(&messages);
  handle_all(rank, messages);
  if (!open && member(rank).state == Member::here) part_with(rank, false, member(rank).connection->error());
}

void Hub::handle_all(int rank, std::span<const Message> messages) {
  for (const Message& message : messages) {
    if (member(rank).state == Member::here) handle(rank, message);
  }
}

void Hub::handle(int rank, const Message& message) {
  switch (message.header.kind) {
    case MessageKind::gather: return take_blob(rank, message.payload);
    case MessageKind::gave_up: return give_up(rank, from_payload<double>(message.payload));
    case MessageKind::goodbye: return part_with(rank, true, 0);
    case MessageKind::failure: {
      const FailureMessage failure = read_failure(message.payload);
      return fail_group(static_cast<ncast_status>(failure.status), rank, failure.sentence);
    }
    default: return part_with(rank, false, EBADMSG);
  }
}

void Hub::part_with(int rank, bool orderly, int error) {
  Member& member = this->member(rank);
  member.state = orderly ? Member::left : Member::died;
  const std::string when = complete_ ? "" : text(" before all %zu ranks had joined", members_.size());
  if (!orderly && (error == 0 || error == ECONNRESET || error == EPIPE)) {
    fail_group(NCAST_REMOTE_ERROR, FailureMessage::from_hub, member.name + " died" + when);
  } else if (!orderly && error == EBADMSG) {
    fail_group(NCAST_REMOTE_ERROR, FailureMessage::from_hub, member.name + " sent what no rank sends" + when);
  } else if (!orderly) {
    fail_group(NCAST_REMOTE_ERROR, FailureMessage::from_hub,
               member.name + " cannot be reached any more" + when + ": " + std::strerror(error));
  } else if (!complete_) {
    fail_group(NCAST_REMOTE_ERROR, FailureMessage::from_hub, member.name + " left" + when);
  }
  if (first_giver_ >= 0) settle_round();
  if (orderly && complete_ && member.beside_hub && rank_beside_hub() < 0) {
    tell_all(MessageKind::hub_may_end, 0, nullptr);
  }
}

void Hub::take_blob(int rank, const std::vector<char>& blob) {
  Member& member = this->member(rank);
  if (failure_ != nullptr) return;
  if (!complete_ || member.gave) return part_with(rank, false, EBADMSG);
  if (first_giver_ < 0) {
    first_giver_ = rank;
    blob_bytes_ = blob.size();
    round_.resize(blob_bytes_ * members_.size());
  }
  if (blob.size() != blob_bytes_) {
    return fail_group(NCAST_MISMATCH, FailureMessage::from_hub,
                      text("rank %d gives %zu bytes to an all_gather to which rank %d gives %zu", rank, blob.size(),
                           first_giver_, blob_bytes_));
  }
  std::copy(blob.begin(), blob.end(), round_.begin() + static_cast<std::ptrdiff_t>(blob_bytes_ * size_t(rank)));
  member.gave = true;
  settle_round();
}

// Ends the round if all have given, or tells those who wait that it never will.
void Hub::settle_round() {
  if (failure_ != nullptr) return;
  const auto lacking =
      std::find_if(members_.begin(), members_.end(), [](const Member& member) { return !member.gave; });
  if (lacking == members_.end()) {
    tell_all(MessageKind::gathered, 0, std::make_shared<const std::vector<char>>(std::move(round_)));
    return end_round();
  }
  const auto gone = std::find_if(members_.begin(), members_.end(),
                                 [](const Member& member) { return !member.gave && member.state == Member::left; });
  if (gone == members_.end()) return;
  const Payload refusal = to_payload(make_failure(NCAST_REMOTE_ERROR, FailureMessage::from_hub,
                                                  (gone->name + " left; an all_gather still needs it").c_str()));
  for (Member& member : members_) {
    if (!member.gave || member.state != Member::here) continue;
    member.connection->queue(MessageKind::refused, 0, refusal);
  }
  end_round();
}

void Hub::end_round() {
  round_ = {};
  first_giver_ = -1;
  for (Member& member : members_) member.gave = false;
}

void Hub::give_up(int rank, double seconds) {
  if (!complete_) {
    return fail_group(
        NCAST_TIMEOUT, rank,
        text("rank %d waited %g s for ranks that have not joined: %s (of %zu)", rank, seconds,
             list_of([](const Member& member) { return member.state == Member::absent; }).c_str(), members_.size()));
  }
  // Otherwise what it waited for is on its way.
  if (!member(rank).gave) return;
  fail_group(NCAST_TIMEOUT, rank,
             text("rank %d waited %g s in all_gather for ranks that have not called it: %s (of %zu)", rank, seconds,
                  list_of([](const Member& member) { return !member.gave; }).c_str(), members_.size()));
}

std::string Hub::list_of(bool (*includes)(const Member&)) const {
  std::string list;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (includes(members_[rank])) list += (list.empty() ? "" : ", ") + std::to_string(rank);
    if (list.size() > 300) return list + ", ...";
  }
  return list;
}

void Hub::fail_group(ncast_status status, int32_t rank, const std::string& sentence) {
  if (failure_ != nullptr) return;
  failure_ = to_payload(make_failure(status, rank, sentence.c_str()));
  failed_at_ = Clock::now();
  round_ = {};
  tell_all(MessageKind::failure, 0, failure_);
}

void Hub::tell_all(MessageKind kind, int32_t value, const Payload& payload) {
  for (Member& member : members_) {
    if (member.state == Member::here) member.connection->queue(kind, value, payload);
  }
}

// What cannot be written is found out by reading, which also finds what the peer said before it ended.
void Hub::write_all() {
  for (Member& member : members_) {
    if (member.state == Member::here) static_cast<void>(member.connection->write_some());
  }
  for (Stranger& stranger : strangers_) {
    if (stranger.connection != nullptr) static_cast<void>(stranger.connection->write_some());
  }
}

int32_t Hub::rank_beside_hub() const {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].state == Member::here && members_[rank].beside_hub) return static_cast<int32_t>(rank);
  }
  return -1;
}

}  // namespace narrowcast::bootstrap
