#include "channel/network/plugin_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bootstrap/shared_memory.h"
#include "channel/network/idle_pause.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::channel {
namespace {

constexpr int plugin_failed = EREMOTEIO;
// Some plugins progress a little in each poll.
constexpr int polls_at_a_time = 16;
// For what was sent before the peer ended to arrive, and for a peer that ended to be noticed.
constexpr bootstrap::Limit arrival_limit{1};
constexpr int notice_ms = 200;

constexpr char sending_domain[] = "narrowcast plugin stream, sending end";
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

PluginStream::~PluginStream() {
  shut_down();
  for (const Direction* direction : {&outgoing_, &incoming_})
    if (direction->registration != nullptr) plugin_.deregister_memory(direction->comm, direction->registration);
  if (outgoing_.comm != nullptr) plugin_.close_sending(outgoing_.comm);
  if (incoming_.comm != nullptr) plugin_.close_receiving(incoming_.comm);
  if (listening_ != nullptr) plugin_.close_listening(listening_);
}

ncast_status PluginStream::listen(Place* own) {
  if (ncast_status status = bootstrap::random_bytes(&own_.challenge, sizeof own_.challenge)) return status;
  if (const int result = plugin_.listen(device_, &own_.handle, &listening_))
    return fail(NCAST_SYSTEM_ERROR, "%s", plugin_.failure("listen", result).c_str());
  *own = own_;
  return NCAST_OK;
}

void PluginStream::meet(const Place& of_peer, const bootstrap::WorldId& secret, int rank, int peer) {
  const auto prove = [&](const StreamClaim& claim) {
    return bootstrap::prove(sending_domain, secret, bootstrap::bytes_of(claim));
  };
  of_peer_ = of_peer;
  own_proof_ = prove({of_peer.challenge, rank, peer});
  peer_proof_ = prove({own_.challenge, peer, rank});
}

ncast_status PluginStream::connect(bool* connected) {
  if (outgoing_.comm == nullptr) {
    if (const int result = plugin_.connect(device_, &of_peer_.handle, &outgoing_.comm))
      return fail(NCAST_SYSTEM_ERROR, "%s", plugin_.failure("connect", result).c_str());
    if (outgoing_.comm != nullptr)
      if (ncast_status status = prepare(outgoing_)) return status;
  }
  if (incoming_.comm == nullptr) {
    if (const int result = plugin_.accept(listening_, &incoming_.comm))
      return fail(NCAST_SYSTEM_ERROR, "%s", plugin_.failure("accept", result).c_str());
    if (incoming_.comm != nullptr)
      if (ncast_status status = prepare(incoming_)) return status;
  }
  *connected = outgoing_.comm != nullptr && incoming_.comm != nullptr;
  return NCAST_OK;
}

ncast_status PluginStream::prepare(Direction& direction) {
  constexpr size_t page_bytes = 4096, bytes = chunks * chunk_bytes;
  direction.memory.reset(static_cast<char*>(std::aligned_alloc(page_bytes, bytes)));
  if (direction.memory == nullptr) return fail(NCAST_SYSTEM_ERROR, "out of memory: the chunks of a network plugin");
  if (const int result =
          plugin_.register_memory(direction.comm, direction.memory.get(), bytes, &direction.registration))
    return fail(NCAST_SYSTEM_ERROR, "%s", plugin_.failure("regMr", result).c_str());
  return NCAST_OK;
}

// poll(&done) returns as the functions of Stream do. It is called until it sets done, or the stream has ended.
template <typename Poll>
int PluginStream::wait(Poll&& poll) {
  for (IdlePause pause;; pause.wait()) {
    for (int i = 0; i < polls_at_a_time; ++i) {
      bool done = false;
      if (const int error = poll(&done); error != 0 || done) return error;
    }
    if (const int error = watch(); error != 0 && !is_missing_bytes()) return error;
  }
}

// --- sending --------------------------------------------------------------------------------------------------------

int PluginStream::send(std::span<iovec> parts) {
  int error = 0;
  if (!has_proved_) {
    has_proved_ = true;
    iovec proof = {&own_proof_, sizeof own_proof_};
    error = send_parts({&proof, 1});
  }
  if (error == 0) error = send_parts(parts);
  // Plugins may need calls to get on, so nothing is left to them.
  while (error == 0 && outgoing_.ended != outgoing_.begun) error = end_oldest_send();
  if (error == 0) sent_bytes_ = begun_bytes_;
  return error == closed ? EPIPE : error;
}

int PluginStream::send_parts(std::span<iovec> parts) {
  for (skip(&parts, 0); !parts.empty();) {
    if (outgoing_.begun - outgoing_.ended == chunks)
      if (const int error = end_oldest_send()) return error;
    char* const chunk = outgoing_.chunk(outgoing_.begun);
    const size_t bytes = gather(&parts, chunk, chunk_bytes);
    void*& request = outgoing_.request(outgoing_.begun);
    request = nullptr;
    const int error = wait([&](bool* done) {
      const int result = plugin_.send(outgoing_.comm, chunk, bytes, outgoing_.registration, &request);
      *done = request != nullptr;
      return result == 0 ? 0 : failed("isend", result);
    });
    if (error != 0) return error;
    ++outgoing_.begun;
    begun_bytes_ += bytes;
  }
  return 0;
}

int PluginStream::end_oldest_send() {
  const int error = wait([this](bool* done) {
    size_t bytes = 0;
    const int result = plugin_.test(outgoing_.request(outgoing_.ended), done, &bytes);
    return result == 0 ? 0 : failed("test", result);
  });
  if (error == 0) ++outgoing_.ended;
  return error;
}

// --- receiving ------------------------------------------------------------------------------------------------------

int PluginStream::receive(std::span<iovec> parts, size_t* bytes) {
  if (!is_proved_)
    if (const int error = check_proof()) return error;
  if (begin_ == end_)
    if (const int error = receive_chunk()) return error;
  *bytes = 0;
  for (const iovec& part : parts) {
    const size_t count = std::min(part.iov_len, end_ - begin_);
    std::memcpy(part.iov_base, incoming_.chunk(incoming_.ended) + begin_, count);
    begin_ += count;
    *bytes += count;
  }
  if (begin_ == end_) ++incoming_.ended;
  return 0;
}

int PluginStream::receive_all(void* to, size_t bytes) {
  for (iovec part = {to, bytes}; part.iov_len != 0;) {
    size_t got = 0;
    if (const int error = receive({&part, 1}, &got)) return error;
    part = {static_cast<char*>(part.iov_base) + got, part.iov_len - got};
  }
  return 0;
}

int PluginStream::receive_chunk() {
  size_t bytes = 0;
  const int error = wait([&](bool* done) {
    while (incoming_.begun - incoming_.ended < chunks) {
      void*& request = incoming_.request(incoming_.begun);
      request = nullptr;
      const int result = plugin_.receive(incoming_.comm, incoming_.chunk(incoming_.begun), chunk_bytes,
                                         incoming_.registration, &request);
      if (result != 0) return failed("irecv", result);
      if (request == nullptr) break;
      ++incoming_.begun;
    }
    if (incoming_.begun == incoming_.ended) return 0;
    const int result = plugin_.test(incoming_.request(incoming_.ended), done, &bytes);
    return result == 0 ? 0 : failed("test", result);
  });
  if (error != 0) return error;
  if (bytes == 0 || bytes > chunk_bytes) return EBADMSG;
  begin_ = 0;
  end_ = bytes;
  received_bytes_ += bytes;
  return 0;
}

int PluginStream::check_proof() {
  if (const int error = receive_chunk()) return error;
  bootstrap::Proof proof = {};
  if (end_ != sizeof proof) return EBADMSG;
  std::memcpy(&proof, incoming_.chunk(incoming_.ended), sizeof proof);
  ++incoming_.ended;
  begin_ = end_;
  is_proved_ = bootstrap::is_same(proof, peer_proof_);
  return is_proved_ ? 0 : EBADMSG;
}

// --- the end --------------------------------------------------------------------------------------------------------

void PluginStream::shut_down() {
  const std::lock_guard lock(mutex_);
  if (is_shut_down_) return;
  is_shut_down_ = true;
  const uint64_t bytes = sent_bytes_;
  static_cast<void>(::send(connection_->socket.get(), &bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
  shutdown(connection_->socket.get(), SHUT_RDWR);
}

// Why the TCP connection has ended; 0 while it has not.
int PluginStream::watch() {
  const std::lock_guard lock(mutex_);
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
bool PluginStream::is_missing_bytes() const {
  const std::lock_guard lock(mutex_);
  return !is_shut_down_ && peer_sent_bytes_ == sizeof peer_sent_ && received_bytes_ < peer_sent_ &&
         !arrival_limit.passed(closed_at_);
}

int PluginStream::failed(const char* function, int result) {
  // If the peer has ended, the plugin may notice it first.
  pollfd event = {connection_->socket.get(), POLLIN, 0};
  poll(&event, 1, notice_ms);
  if (const int error = watch()) return error;
  const std::lock_guard lock(mutex_);
  failure_ = plugin_.failure(function, result);
  return plugin_failed;
}

std::string PluginStream::describe(int error) const {
  const std::lock_guard lock(mutex_);
  return error == plugin_failed ? failure_ : system_error_text(error);
}

}  // namespace narrowcast::channel
