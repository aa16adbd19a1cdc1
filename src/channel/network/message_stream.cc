#include "channel/network/message_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "bootstrap/shared_memory.h"
#include "channel/network/idle_pause.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::channel {
namespace {

constexpr int network_failed = EREMOTEIO;
// Some networks progress a little in each poll.
constexpr int polls_at_a_time = 16;
// For what was sent before the peer ended to arrive, and for a peer that ended to be noticed.
constexpr bootstrap::Limit arrival_limit{1};
constexpr int notice_ms = 200;

// The only message over TCP before the end: a challenge, then the place.
constexpr auto place_kind = static_cast<bootstrap::MessageKind>(0x63616c70);
constexpr size_t longest_place_bytes = size_t{64} << 10;

constexpr char sending_domain[] = "narrowcast message stream, sending end";
// What a proof is about.
struct StreamClaim {
  bootstrap::Challenge challenge;
  int32_t from, to;
};

// Moves the begin of the parts, at most `capacity` bytes, to a chunk. Returns the number of bytes.
size_t gather(std::span<iovec>* parts, char* chunk, size_t capacity) {
  size_t bytes = 0;
  while (!parts->empty() && bytes != capacity) {
    const size_t count = std::min(parts->front().iov_len, capacity - bytes);
    std::memcpy(chunk + bytes, parts->front().iov_base, count);
    bytes += count;
    skip(parts, count);
  }
  return bytes;
}

}  // namespace

ncast_status MessageStream::Chunks::allocate() {
  constexpr size_t page_bytes = 4096;
  memory_.reset(static_cast<char*>(std::aligned_alloc(page_bytes, bytes)));
  return memory_ != nullptr ? NCAST_OK : fail(NCAST_SYSTEM_ERROR, "out of memory: the chunks of a connection");
}

// --- connecting -----------------------------------------------------------------------------------------------------

ncast_status MessageStream::begin(const bootstrap::WorldId& secret, int rank, int peer) {
  secret_ = secret;
  rank_ = rank;
  peer_ = peer;
  std::string place;
  if (ncast_status status = bootstrap::random_bytes(&own_challenge_, sizeof own_challenge_)) return status;
  if (ncast_status status = listen(&place)) return status;
  place.insert(0, bootstrap::bytes_of(own_challenge_));
  connection_->allow_payload(longest_place_bytes);
  connection_->queue(place_kind, 0, std::make_shared<std::vector<char>>(place.begin(), place.end()));
  return NCAST_OK;
}

ncast_status MessageStream::connect(bool* connected) {
  if (place_.empty())
    if (ncast_status status = exchange_places(); status != NCAST_OK || place_.empty()) return status;
  if (!is_open_)
    if (ncast_status status = open(place_, &is_open_); status != NCAST_OK || !is_open_) return status;
  return exchange_proofs(connected);
}

ncast_status MessageStream::exchange_places() {
  // If the connection has ended, the rendezvous knows why.
  std::vector<bootstrap::Message> messages;
  connection_->write_some();
  connection_->read_some(&messages);
  if (messages.empty()) return NCAST_OK;
  const bootstrap::Message& message = messages.front();
  bootstrap::Challenge challenge;
  if (message.header.kind != place_kind || message.payload.size() <= sizeof challenge) return fail_to_connect(EBADMSG);
  std::memcpy(&challenge, message.payload.data(), sizeof challenge);
  place_.assign(message.payload.begin() + sizeof challenge, message.payload.end());
  const auto prove = [&](const StreamClaim& claim) {
    return bootstrap::prove(sending_domain, secret_, bootstrap::bytes_of(claim));
  };
  own_proof_ = prove({challenge, rank_, peer_});
  peer_proof_ = prove({own_challenge_, peer_, rank_});
  return NCAST_OK;
}

// The first message in each direction is a proof.
ncast_status MessageStream::exchange_proofs(bool* done) {
  int error = 0;
  bool begun = begun_ != 0, sent = ended_ != 0;
  if (!begun) {
    std::memcpy(outgoing_chunk(0), &own_proof_, sizeof own_proof_);
    error = begin_send(0, sizeof own_proof_, &begun);
    begun_ = begun ? 1 : 0;
  }
  if (error == 0 && begun && !sent) {
    error = poll_sent(0, &sent);
    ended_ = sent ? 1 : 0;
  }
  const char* data = nullptr;
  size_t bytes = 0;
  if (error == 0 && !is_proved_) error = poll_arrived(&data, &bytes);
  if (data != nullptr) {
    bootstrap::Proof proof = {};
    if (bytes == sizeof proof) std::memcpy(&proof, data, sizeof proof);
    release_arrived();
    is_proved_ = bootstrap::is_same(proof, peer_proof_);
    if (!is_proved_) error = EBADMSG;
  }
  *done = error == 0 && sent && is_proved_;
  return error == 0 ? NCAST_OK : fail_to_connect(error);
}

ncast_status MessageStream::fail_to_connect(int error) {
  if (error == EBADMSG) return fail(NCAST_CORRUPT, "what it sent is not valid");
  if (error == network_failed) return fail(NCAST_SYSTEM_ERROR, "%s", describe(error).c_str());
  return NCAST_OK;  // the peer has ended: the rendezvous knows why
}

// poll(&done) returns as the functions of Stream do. It is called until it sets done, or the stream has ended.
template <typename Poll>
int MessageStream::wait(Poll&& poll) {
  for (IdlePause pause;; pause.wait()) {
    for (int i = 0; i < polls_at_a_time; ++i) {
      bool done = false;
      if (const int error = poll(&done); error != 0 || done) return error;
    }
    if (const int error = watch(); error != 0 && !is_missing_bytes()) return error;
  }
}

// --- sending --------------------------------------------------------------------------------------------------------

int MessageStream::send(std::span<iovec> parts) {
  int error = send_parts(parts);
  // Networks may need calls to get on, so nothing is left to them.
  while (error == 0 && ended_ != begun_) error = end_oldest_send();
  if (error == 0) sent_bytes_ = begun_bytes_;
  return error == closed ? EPIPE : error;
}

int MessageStream::send_parts(std::span<iovec> parts) {
  for (skip(&parts, 0); !parts.empty();) {
    if (begun_ - ended_ == chunks)
      if (const int error = end_oldest_send()) return error;
    const size_t bytes = gather(&parts, outgoing_chunk(begun_), chunk_bytes);
    if (const int error = wait([&](bool* begun) { return begin_send(begun_, bytes, begun); })) return error;
    ++begun_;
    begun_bytes_ += bytes;
  }
  return 0;
}

int MessageStream::end_oldest_send() {
  const int error = wait([this](bool* sent) { return poll_sent(ended_, sent); });
  if (error == 0) ++ended_;
  return error;
}

// --- receiving ------------------------------------------------------------------------------------------------------

int MessageStream::receive(std::span<iovec> parts, size_t* bytes) {
  if (arrived_bytes_ == 0)
    if (const int error = receive_message()) return error;
  *bytes = 0;
  for (const iovec& part : parts) {
    const size_t count = std::min(part.iov_len, arrived_bytes_);
    std::memcpy(part.iov_base, arrived_, count);
    arrived_ += count;
    arrived_bytes_ -= count;
    *bytes += count;
  }
  if (arrived_bytes_ == 0) release_arrived();
  return 0;
}

int MessageStream::receive_all(void* to, size_t bytes) {
  for (iovec part = {to, bytes}; part.iov_len != 0;) {
    size_t got = 0;
    if (const int error = receive({&part, 1}, &got)) return error;
    part = {static_cast<char*>(part.iov_base) + got, part.iov_len - got};
  }
  return 0;
}

int MessageStream::receive_message() {
  size_t bytes = 0;
  const int error = wait([&](bool* done) {
    arrived_ = nullptr;
    const int result = poll_arrived(&arrived_, &bytes);
    *done = result == 0 && arrived_ != nullptr;
    return result;
  });
  if (error != 0) return error;
  if (bytes == 0 || bytes > chunk_bytes) return EBADMSG;
  arrived_bytes_ = bytes;
  received_bytes_ += bytes;
  return 0;
}

// --- the end --------------------------------------------------------------------------------------------------------

void MessageStream::shut_down() {
  const std::lock_guard lock(mutex_);
  if (is_shut_down_) return;
  is_shut_down_ = true;
  has_ended_first_ = look() == 0;
  const uint64_t bytes = sent_bytes_;
  static_cast<void>(::send(connection_->socket.get(), &bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
  shutdown(connection_->socket.get(), SHUT_RDWR);
}

bool MessageStream::has_ended_first() const {
  const std::lock_guard lock(mutex_);
  return has_ended_first_;
}

// Why the TCP connection has ended; 0 while it has not.
int MessageStream::watch() {
  const std::lock_guard lock(mutex_);
  return look();
}

int MessageStream::look() {
  if (watched_ != 0) return watched_;
  const ssize_t got = recv(connection_->socket.get(), reinterpret_cast<char*>(&peer_sent_) + peer_sent_bytes_,
                           sizeof peer_sent_ - peer_sent_bytes_, MSG_DONTWAIT);
  if (got > 0) peer_sent_bytes_ += static_cast<size_t>(got);
  if (got == 0 || peer_sent_bytes_ == sizeof peer_sent_) {
    watched_ = closed;
    closed_at_ = bootstrap::Clock::now();
  } else if (got < 0 && errno != EAGAIN && errno != EINTR) {
    watched_ = errno;
  }
  return watched_;
}

// Whether something that the peer has sent is still to come.
bool MessageStream::is_missing_bytes() const {
  const std::lock_guard lock(mutex_);
  return !is_shut_down_ && peer_sent_bytes_ == sizeof peer_sent_ && received_bytes_ < peer_sent_ &&
         !arrival_limit.passed(closed_at_);
}

int MessageStream::failed(const std::string& reason) {
  // If the peer has ended, the network may notice it first.
  pollfd event = {connection_->socket.get(), POLLIN, 0};
  poll(&event, 1, notice_ms);
  if (const int error = watch()) return error;
  const std::lock_guard lock(mutex_);
  failure_ = reason;
  return network_failed;
}

std::string MessageStream::describe(int error) const {
  const std::lock_guard lock(mutex_);
  return error == network_failed ? failure_ : system_error_text(error);
}

}  // namespace narrowcast::channel
