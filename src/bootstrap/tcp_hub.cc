#include "bootstrap/tcp_hub.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <iterator>

#include "bootstrap/rank_list.h"

namespace narrowcast::bootstrap {
namespace {

constexpr Limit linger_limit = {600};  // how long the hub tells late ranks that joining has failed

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[Rendezvous::failure_message_bytes];
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
    if (member.state == Member::joined) return false;
  }
  if (complete_ || (close_requested_ && members_.empty())) return true;
  return failure_ != nullptr ? linger_limit.passed(failed_at_) : unused_limit_.passed(opened_);
}

double Hub::seconds_left() const {
  const Limit limit = failure_ != nullptr ? linger_limit : unused_limit_;
  if (complete_ || limit.seconds <= 0) return -1;
  const auto since = failure_ != nullptr ? failed_at_ : opened_;
  return std::max(0.0, limit.seconds - std::chrono::duration<double>(Clock::now() - since).count());
}

void Hub::add_connections(std::vector<Connection*>* connections) const {
  for (const Member& member : members_)
    if (member.state == Member::joined) connections->push_back(member.connection.get());
}

void Hub::serve_members() {
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) serve_member(rank);
  // Write errors are ignored here: the next read reports them, after the messages that the peer sent before it ended.
  for (Member& member : members_) {
    if (member.state == Member::joined) static_cast<void>(member.connection->write_some());
  }
}

void Hub::close_ended() {
  for (Member& member : members_) {
    if (member.state != Member::joined) member.connection.reset();
  }
}

bool Hub::is_proved_by(const Message& hello, const Challenge& challenge) const {
  const auto content = from_payload<Hello>(hello.payload);
  return is_same(content.proof, prove_hello(secret_, challenge, {hello.payload.data(), hello.payload.size()}));
}

void Hub::admit(PendingConnection& pending, std::span<const Message> messages) {
  const auto hello = from_payload<Hello>(messages[0].payload);
  // The rank may already have sent more than its hello.
  if (accept(pending, hello, messages[0].payload.size())) handle_messages(hello.rank, messages.subspan(1));
}

// Moves the connection of an accepted rank to its Member.
bool Hub::accept(PendingConnection& pending, const Hello& hello, size_t hello_bytes) {
  if (hello.version != protocol_version || hello_bytes != sizeof hello) {
    return reject(pending, text("rank %d uses another version of the library than the process that created the unique "
                                "id (protocol %u and %u)",
                                hello.rank, hello.version, protocol_version));
  }
  if (hello.ranks < 1 || hello.ranks > Rendezvous::max_ranks || hello.rank < 0 || hello.rank >= hello.ranks) {
    pending.closed = true;
    return false;
  }
  if (members_.empty()) members_.resize(static_cast<size_t>(hello.ranks));
  if (failure_ != nullptr) return reject(pending, "");
  const std::string name = name_of(hello);
  if (members_.size() != static_cast<size_t>(hello.ranks)) {
    return reject(pending,
                  text("%s expects %d ranks, other ranks expect %zu", name.c_str(), hello.ranks, members_.size()));
  }
  Member& member = this->member(hello.rank);
  if (member.state != Member::absent) {
    return reject(pending,
                  text("two callers joined as rank %d: %s and %s", hello.rank, member.name.c_str(), name.c_str()));
  }
  member.state = Member::joined;
  member.connection = std::move(pending.connection);
  member.connection->allow_payload(
      std::max(largest_short_message, Rendezvous::max_round_bytes / static_cast<size_t>(hello.ranks)));
  member.name = name;
  member.in_hub_process = hello.in_hub_process != 0;
  member.welcome = to_payload(prove_welcome(secret_, pending.challenge, hello.challenge));
  pending.closed = true;
  complete_ = ++joined_ranks_ == hello.ranks;
  if (complete_) {
    for (Member& one : members_) one.connection->queue(MessageKind::welcome, rank_in_hub_process(), one.welcome);
  }
  return true;
}

// Rejects a connection that knows the secret but contradicts the other ranks. Fails the group if ranks are missing.
bool Hub::reject(PendingConnection& pending, const std::string& message) {
  if (!complete_) fail_group(NCAST_MISMATCH, FailureMessage::from_hub, message);
  Payload reason = failure_;
  if (reason == nullptr) {
    reason = to_payload(make_failure(NCAST_MISMATCH, FailureMessage::from_hub, message.c_str()));
  }
  pending.connection->queue(MessageKind::failure, 0, std::move(reason));
  pending.rejected = true;
  return false;
}

void Hub::serve_member(int rank) {
  if (member(rank).state != Member::joined || !member(rank).connection->has_events) return;
  std::vector<Message> messages;
  const bool open = member(rank).connection->read_some(&messages);
  handle_messages(rank, messages);
  if (!open && member(rank).state == Member::joined) remove_member(rank, false, member(rank).connection->error());
}

void Hub::handle_messages(int rank, std::span<const Message> messages) {
  for (const Message& message : messages) {
    if (member(rank).state == Member::joined) handle(rank, message);
  }
}

void Hub::handle(int rank, const Message& message) {
  switch (message.header.kind) {
    case MessageKind::gather: return receive_blob(rank, message.payload);
    case MessageKind::to_peer: return relay(rank, message.header.value, message.payload);
    case MessageKind::timed_out: return handle_timeout(rank, from_payload<double>(message.payload));
    case MessageKind::goodbye: return remove_member(rank, true, 0);
    case MessageKind::failure: {
      const FailureMessage failure = read_failure(message.payload);
      return fail_group(static_cast<ncast_status>(failure.status), rank, failure.text);
    }
    default: return remove_member(rank, false, EBADMSG);
  }
}

void Hub::remove_member(int rank, bool orderly, int error) {
  Member& member = this->member(rank);
  member.state = orderly ? Member::left : Member::died;
  const std::string when = complete_ ? "" : text(" before all %zu ranks had joined", members_.size());
  if (!orderly && (error == 0 || error == ECONNRESET || error == EPIPE)) {
    fail_group(NCAST_REMOTE_ERROR, FailureMessage::from_hub, member.name + " died" + when);
  } else if (!orderly && error == EBADMSG) {
    fail_group(NCAST_REMOTE_ERROR, FailureMessage::from_hub, member.name + " sent an invalid message" + when);
  } else if (!orderly) {
    fail_group(NCAST_REMOTE_ERROR, FailureMessage::from_hub,
               "lost the connection to " + member.name + when + ": " + std::strerror(error));
  } else if (!complete_) {
    fail_group(NCAST_REMOTE_ERROR, FailureMessage::from_hub, member.name + " left" + when);
  }
  if (first_contributor_ >= 0) advance_round();
  for (auto one = unanswered_.begin(); one != unanswered_.end();) {
    const auto [sender, receiver] = *one;
    if (receiver == rank) this->member(sender).connection->queue(MessageKind::peer_left, rank);
    one = sender == rank || receiver == rank ? unanswered_.erase(one) : std::next(one);
  }
  if (orderly && complete_ && member.in_hub_process && rank_in_hub_process() < 0) {
    send_to_all(MessageKind::hub_may_end, 0, nullptr);
  }
}

void Hub::receive_blob(int rank, const std::vector<char>& blob) {
  Member& member = this->member(rank);
  if (failure_ != nullptr) return;
  if (!complete_ || member.contributed) return remove_member(rank, false, EBADMSG);
  if (first_contributor_ < 0) {
    first_contributor_ = rank;
    blob_bytes_ = blob.size();
    round_.resize(blob_bytes_ * members_.size());
  }
  if (blob.size() != blob_bytes_) {
    return fail_group(NCAST_MISMATCH, FailureMessage::from_hub,
                      text("rank %d contributes %zu bytes to an all_gather, but rank %d contributes %zu bytes", rank,
                           blob.size(), first_contributor_, blob_bytes_));
  }
  std::copy(blob.begin(), blob.end(), round_.begin() + static_cast<std::ptrdiff_t>(blob_bytes_ * size_t(rank)));
  member.contributed = true;
  advance_round();
}

// Of two ranks, each sends one blob to the other.
void Hub::relay(int from, int to, const std::vector<char>& blob) {
  if (failure_ != nullptr) return;
  const bool is_rank = to >= 0 && static_cast<size_t>(to) < members_.size() && to != from;
  if (!complete_ || !is_rank || blob.size() > Rendezvous::max_pair_bytes) return remove_member(from, false, EBADMSG);
  if (member(to).state != Member::joined) return member(from).connection->queue(MessageKind::peer_left, to);
  if (unanswered_.erase({to, from}) == 0) unanswered_.emplace(from, to);
  member(to).connection->queue(MessageKind::to_peer, from, std::make_shared<const std::vector<char>>(blob));
}

// Ends the round if all ranks have contributed, or with an error if a rank has left without contributing.
void Hub::advance_round() {
  if (failure_ != nullptr) return;
  const auto missing =
      std::find_if(members_.begin(), members_.end(), [](const Member& member) { return !member.contributed; });
  if (missing == members_.end()) {
    send_to_all(MessageKind::gathered, 0, std::make_shared<const std::vector<char>>(std::move(round_)));
    return end_round();
  }
  const auto left = std::find_if(members_.begin(), members_.end(), [](const Member& member) {
    return !member.contributed && member.state == Member::left;
  });
  if (left == members_.end()) return;
  const Payload refusal = to_payload(make_failure(NCAST_REMOTE_ERROR, FailureMessage::from_hub,
                                                  (left->name + " left before an all_gather that needs it").c_str()));
  for (Member& member : members_) {
    if (!member.contributed || member.state != Member::joined) continue;
    member.connection->queue(MessageKind::gather_refused, 0, refusal);
  }
  end_round();
}

void Hub::end_round() {
  round_ = {};
  first_contributor_ = -1;
  for (Member& member : members_) member.contributed = false;
}

void Hub::handle_timeout(int rank, double seconds) {
  if (!complete_) {
    return fail_group(NCAST_TIMEOUT, rank,
                      text("rank %d waited %g s for ranks that have not joined: %s (of %zu)", rank, seconds,
                           ranks_where([](const Member& member) { return member.state == Member::absent; }).c_str(),
                           members_.size()));
  }
  // If the rank has no open contribution, the result that it waited for is already on its way.
  if (!member(rank).contributed) return;
  fail_group(NCAST_TIMEOUT, rank,
             text("rank %d waited %g s in all_gather for ranks that have not called it: %s (of %zu)", rank, seconds,
                  ranks_where([](const Member& member) { return !member.contributed; }).c_str(), members_.size()));
}

std::string Hub::ranks_where(bool (*includes)(const Member&)) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < members_.size(); ++rank)
    if (includes(members_[rank])) ranks.push_back(static_cast<int>(rank));
  return rank_list(ranks);
}

void Hub::fail_group(ncast_status status, int32_t rank, const std::string& message) {
  if (failure_ != nullptr) return;
  failure_ = to_payload(make_failure(status, rank, message.c_str()));
  failed_at_ = Clock::now();
  round_ = {};
  send_to_all(MessageKind::failure, 0, failure_);
}

void Hub::send_to_all(MessageKind kind, int32_t value, const Payload& payload) {
  for (Member& member : members_) {
    if (member.state == Member::joined) member.connection->queue(kind, value, payload);
  }
}

int32_t Hub::rank_in_hub_process() const {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].state == Member::joined && members_[rank].in_hub_process) return static_cast<int32_t>(rank);
  }
  return -1;
}

}  // namespace narrowcast::bootstrap
