// Rank r connects to the ranks of other hosts before it, and accepts connections of those after it. Both ends prove
// that they know the secret (bootstrap/proof.h):
//   accepting end   challenge
//   connecting end  hello: its rank, its challenge, its proof
//   accepting end   proof
#include "channel/network/meeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "bootstrap/interrupt.h"
#include "bootstrap/outcome.h"
#include "bootstrap/proof.h"
#include "bootstrap/shared_memory.h"
#include "bootstrap/tcp_address.h"
#include "bootstrap/tcp_messages.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::channel {
namespace {

using bootstrap::Challenge;
using bootstrap::Clock;
using bootstrap::Connection;
using bootstrap::Message;
using bootstrap::Proof;

enum Greeting : uint32_t { challenge_kind = 0x6b6e6c63, hello_kind, proof_kind };

// For a connection to say something that is right.
constexpr bootstrap::Limit stranger_limit{20};
constexpr size_t most_strangers = 256;
constexpr std::chrono::milliseconds turn_interval{50};

struct Hello {
  int32_t rank;
  uint32_t reserved;
  Challenge challenge;
  Proof proof;
};

// What a proof is about.
struct Claim {
  Challenge accepting, connecting;
  int32_t ranks[2];  // of the accepting and the connecting end
};
constexpr char connecting_domain[] = "narrowcast link, connecting end",
               accepting_domain[] = "narrowcast link, accepting end";

template <typename Content>
bool is_message(const Message& message, Greeting kind) {
  return message.header.kind == static_cast<bootstrap::MessageKind>(kind) && message.payload.size() == sizeof(Content);
}

// A connection that is not known to be that of a rank yet.
struct Candidate {
  std::unique_ptr<Connection> connection;
  int peer = -1;  // of the connecting end: the rank it connects to
  Claim claim = {};
  Clock::time_point since = Clock::now();
  bool failed = false;
};

class Meeting {
 public:
  Meeting(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret, bootstrap::Limit limit, RankSet others,
          std::span<const std::string> names, Connections& connections)
      : rendezvous_(rendezvous),
        secret_(secret),
        limit_(limit),
        names_(names),
        missing_(others),
        connections_(connections) {}

  ncast_status open();
  ncast_status run();

 private:
  int rank() const { return rendezvous_.rank(); }
  const char* name_of(int peer) const { return names_[static_cast<size_t>(peer)].c_str(); }
  std::string place_of(int peer) const { return places_[static_cast<size_t>(peer)].text(); }
  ncast_status check() const;
  ncast_status connect(int to);
  void accept();
  Candidate make_candidate(int peer);
  Proof prove_as(const char* domain, const Claim& claim) const {
    return bootstrap::prove(domain, secret_, bootstrap::bytes_of(claim));
  }
  void send(Candidate& candidate, Greeting kind, bootstrap::Payload payload) {
    candidate.connection->queue(static_cast<bootstrap::MessageKind>(kind), 0, std::move(payload));
  }
  bool answer(Candidate& candidate, const Message& message);
  bool answer_as_connecting(Candidate& candidate, const Message& message);
  bool answer_as_accepting(Candidate& candidate, const Message& message);
  void take(Candidate& candidate, int from);

  bootstrap::Rendezvous& rendezvous_;
  const bootstrap::WorldId secret_;
  const bootstrap::Limit limit_;
  const Clock::time_point start_ = Clock::now();
  const std::span<const std::string> names_;
  RankSet missing_;  // ranks without a connection
  Connections& connections_;
  std::vector<bootstrap::TcpAddress> places_;
  bootstrap::Descriptor listener_;
  std::vector<Candidate> candidates_;
};

ncast_status Meeting::open() {
  bootstrap::TcpAddress own = {};
  // Ranks without peers on other hosts take part in the exchange, and do not listen.
  ncast_status status = NCAST_OK;
  if (missing_ != 0)
    status = bootstrap::listen(bootstrap::Reach::anywhere, bootstrap::wanted_interfaces(bootstrap::Reach::anywhere),
                               &listener_, &own);
  if ((status = bootstrap::agree_on_outcome(rendezvous_, status))) return status;
  places_.resize(static_cast<size_t>(rendezvous_.ranks()));
  connections_.resize(places_.size());
  return rendezvous_.all_gather(&own, sizeof own, places_.data());
}

// Why the meeting cannot go on.
ncast_status Meeting::check() const {
  if (bootstrap::is_interrupted()) return bootstrap::interrupted();
  if (ncast_status status = rendezvous_.check_failure()) return status;
  if (!limit_.passed(start_)) return NCAST_OK;
  const int peer = std::countr_zero(missing_);
  return fail(NCAST_TIMEOUT, "no connection to %s at %s within %g s", name_of(peer), place_of(peer).c_str(),
              limit_.seconds);
}

ncast_status Meeting::run() {
  for (int peer = 0; peer < rank(); ++peer) {
    if ((missing_ & rank_bit(peer)) == 0) continue;
    if (ncast_status status = connect(peer)) return status;
  }
  while (missing_ != 0) {
    if (ncast_status status = check()) return status;
    std::vector<pollfd> events = {{listener_.get(), POLLIN, 0}};
    for (const Candidate& candidate : candidates_) events.push_back(candidate.connection->wanted_events());
    poll(events.data(), events.size(), static_cast<int>(turn_interval.count()));
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& candidate = candidates_[i];
      if (events[i + 1].revents == 0) continue;
      std::vector<Message> messages;
      candidate.failed = !candidate.connection->write_some() || !candidate.connection->read_some(&messages);
      for (const Message& message : messages) {
        if (candidate.connection == nullptr || answer(candidate, message)) continue;
        candidate.failed = true;
        break;
      }
      if (candidate.connection != nullptr && !candidate.connection->write_some()) candidate.failed = true;
      if (candidate.failed && candidate.peer >= 0 && candidate.connection != nullptr)
        return fail(NCAST_REMOTE_ERROR, "the connection to %s at %s failed: %s", name_of(candidate.peer),
                    place_of(candidate.peer).c_str(),
                    candidate.connection->error() == 0 ? "it was closed"
                                                       : system_error_text(candidate.connection->error()).c_str());
    }
    std::erase_if(candidates_, [](const Candidate& candidate) {
      return candidate.connection == nullptr || candidate.failed ||
             (candidate.peer < 0 && stranger_limit.passed(candidate.since));
    });
    if (events[0].revents != 0) accept();
  }
  return NCAST_OK;
}

ncast_status Meeting::connect(int to) {
  const bootstrap::TcpAddress& place = places_[static_cast<size_t>(to)];
  sockaddr_storage address;
  const socklen_t bytes = place.socket_address(&address);
  Candidate candidate = make_candidate(to);
  bootstrap::Descriptor& socket = candidate.connection->socket;
  // A connection that is refused fails at the first read.
  const bool connects = bytes != 0 && socket.open([&] {
    return ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  }) && (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0 || errno == EINPROGRESS);
  if (!connects)
    return fail(NCAST_SYSTEM_ERROR, "cannot connect to %s at %s: %s", name_of(to), place.text().c_str(),
                bytes == 0 ? "this is no address" : system_error_text(errno).c_str());
  bootstrap::set_up_socket(socket.get());
  candidates_.push_back(std::move(candidate));
  return NCAST_OK;
}

void Meeting::accept() {
  while (candidates_.size() < most_strangers + places_.size()) {
    Candidate candidate = make_candidate(-1);
    bootstrap::Descriptor& socket = candidate.connection->socket;
    if (!socket.open([this] { return accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }))
      return;
    bootstrap::set_up_socket(socket.get());
    if (bootstrap::random_bytes(&candidate.claim.accepting, sizeof candidate.claim.accepting) != NCAST_OK) return;
    send(candidate, challenge_kind, bootstrap::to_payload(candidate.claim.accepting));
    if (candidate.connection->write_some()) candidates_.push_back(std::move(candidate));
  }
}

Candidate Meeting::make_candidate(int peer) {
  Candidate candidate;
  candidate.connection = std::make_unique<Connection>();
  candidate.connection->allow_payload(sizeof(Hello));
  candidate.peer = peer;
  return candidate;
}

bool Meeting::answer(Candidate& candidate, const Message& message) {
  return candidate.peer >= 0 ? answer_as_connecting(candidate, message) : answer_as_accepting(candidate, message);
}

bool Meeting::answer_as_connecting(Candidate& candidate, const Message& message) {
  Claim& claim = candidate.claim;
  if (is_message<Challenge>(message, challenge_kind)) {
    claim.accepting = bootstrap::from_payload<Challenge>(message.payload);
    if (bootstrap::random_bytes(&claim.connecting, sizeof claim.connecting) != NCAST_OK) return false;
    claim.ranks[0] = candidate.peer;
    claim.ranks[1] = rank();
    send(candidate, hello_kind,
         bootstrap::to_payload(Hello{rank(), 0, claim.connecting, prove_as(connecting_domain, claim)}));
    return true;
  }
  if (!is_message<Proof>(message, proof_kind) || claim.connecting == Challenge{} ||
      !bootstrap::is_same(bootstrap::from_payload<Proof>(message.payload), prove_as(accepting_domain, claim)))
    return false;
  take(candidate, candidate.peer);
  return true;
}

bool Meeting::answer_as_accepting(Candidate& candidate, const Message& message) {
  Claim& claim = candidate.claim;
  if (!is_message<Hello>(message, hello_kind)) return false;
  const auto hello = bootstrap::from_payload<Hello>(message.payload);
  if (hello.rank <= rank() || hello.rank >= rendezvous_.ranks() || (missing_ & rank_bit(hello.rank)) == 0) return false;
  claim.connecting = hello.challenge;
  claim.ranks[0] = rank();
  claim.ranks[1] = hello.rank;
  if (!bootstrap::is_same(hello.proof, prove_as(connecting_domain, claim))) return false;
  send(candidate, proof_kind, bootstrap::to_payload(prove_as(accepting_domain, claim)));
  // The proof is short, and the first that is sent after the challenge: the socket has room for it.
  if (!candidate.connection->write_some()) return false;
  take(candidate, hello.rank);
  return true;
}

void Meeting::take(Candidate& candidate, int from) {
  connections_[static_cast<size_t>(from)] = std::move(candidate.connection);
  missing_ &= ~rank_bit(from);
}

}  // namespace

ncast_status connect_ranks(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret, bootstrap::Limit limit,
                           RankSet others, std::span<const std::string> names, Connections* connections) {
  Meeting meeting(rendezvous, secret, limit, others, names, *connections);
  if (ncast_status status = meeting.open()) return status;
  return bootstrap::agree_on_outcome(rendezvous, meeting.run());
}

void find_loss_within(int socket, bootstrap::Limit call_limit) {
  const double limit = call_limit.seconds;
  bootstrap::limit_silence(socket, limit <= 0 ? bootstrap::longest_silence_seconds : 0.8 * limit);
}

}  // namespace narrowcast::channel
