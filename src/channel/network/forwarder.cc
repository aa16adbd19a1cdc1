#include "channel/network/forwarder.h"

#include <sys/prctl.h>

#include "bootstrap/background_thread.h"
#include "channel/network/idle_pause.h"

namespace narrowcast::channel {
namespace {

constexpr std::chrono::seconds leaving_limit{1};

std::vector<SentCounts> counts_of(int peer, int ranks, const Forwarder::Memory& memory) {
  const auto word = [&](size_t offset) { return *reinterpret_cast<const uint32_t*>(memory.scratch + offset); };
  std::vector<SentCounts> counts(memory.share.rings(memory.layout.rings()));
  for (uint32_t number = 0; number < counts.size(); ++number) {
    const uint32_t ring = memory.share.ring(number);
    counts[number].sent = word(memory.layout.sent(peer, ring, ranks));
    counts[number].granted = word(memory.layout.received(peer, ring, ranks));
  }
  return counts;
}

}  // namespace

Forwarder::Forwarder(int rank, int peer, int ranks, std::unique_ptr<Stream> stream, const Memory& memory, Failed failed)
    : stream_(std::move(stream)),
      failed_(std::move(failed)),
      counts_(counts_of(peer, ranks, memory)),
      sender_(*stream_, {memory.mirror, rank, ranks, memory.layout, memory.call_words, memory.share}, counts_),
      receiver_(*stream_, {memory.scratch, peer, ranks, memory.layout, memory.call_words, memory.share}, counts_) {}

ncast_status Forwarder::start() {
  threads_ = 2;
  ncast_status status = bootstrap::start_background_thread("ncast-receive", [this] { receive(); }, &receiving_);
  if (status == NCAST_OK) status = bootstrap::start_background_thread("ncast-send", [this] { send(); }, &sending_);
  return status;
}

void Forwarder::leave() {
  if (!leaving_.exchange(true)) left_at_ = std::chrono::steady_clock::now();
}

Forwarder::~Forwarder() {
  leave();
  if (sending_.joinable()) {
    std::unique_lock lock(mutex_);
    ended_one_.wait_until(lock, left_at_ + leaving_limit, [this] { return threads_ == 0; });
  }
  closing_ = true;
  stream_->shut_down();  // ends both threads
  if (sending_.joinable()) sending_.join();
  if (receiving_.joinable()) receiving_.join();
}

void Forwarder::send() {
  prctl(PR_SET_TIMERSLACK, 1000);  // ns: short naps stay short
  int error = 0;
  for (IdlePause pause; error == 0 && !closing_;) {
    const bool leaving = leaving_;  // before the last look at the mirror
    error = sender_.send_new();
    if (error != 0) break;
    if (sender_.has_sent()) {
      pause.reset();
    } else if (leaving) {
      error = sender_.send_goodbye();
      break;
    } else {
      pause.wait();
    }
  }
  // The receiving thread reports the failure: it may find that the peer has left.
  send_error_ = error;
  if (error != 0) stream_->shut_down();
  end_one();
}

void Forwarder::receive() {
  int error = receiver_.run();
  if (error == 0) error = send_error_;
  if (!receiver_.has_goodbye()) {
    closing_ = true;
    stream_->shut_down();
    if (!leaving_) failed_(error, stream_->describe(error));
  }
  end_one();
}

void Forwarder::end_one() {
  const std::lock_guard lock(mutex_);
  --threads_;
  ended_one_.notify_all();
}

}  // namespace narrowcast::channel
