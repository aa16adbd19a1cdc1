// A connection between two ranks of GPUs on different hosts: one of several flows, if one thread is slower than the
// network. One thread sends what the kernels of this rank have written to the mirror of the peer, another one stores
// what the peer sends in the scratch of this rank.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "channel/network/forwarding_receiver.h"
#include "channel/network/forwarding_sender.h"
#include "channel/network/stream.h"
#include "narrowcast/types.h"

namespace narrowcast::channel {

class Forwarder {
 public:
  struct Memory {
    char* scratch;  // of this rank
    char* mirror;   // of the peer's scratch
    ChannelLayout layout;
    size_t call_words;  // offset of the CallWords in both
    FlowShare share = {};
  };
  // Why the connection has ended: see fail_of_connection().
  using Failed = std::function<void(int error, const std::string& text)>;

  // failed: called once, by a thread of the forwarder, if the connection ends before one of the ranks leaves. The rings
  // are empty; counts that the memory contains continue.
  Forwarder(int rank, int peer, int ranks, std::unique_ptr<Stream> stream, const Memory& memory, Failed failed);
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;
  // Waits, at most a second after leave(), until both ranks have received what the other one has sent.
  ~Forwarder();

  // Once. Error: SYSTEM_ERROR.
  ncast_status start();
  // Announces that this rank leaves, after what its kernels have written. Does not block.
  void leave();

  // Bytes of the payloads sent.
  uint64_t payload_bytes() const { return sender_.payload_bytes(); }

 private:
  void send();
  void receive();
  void end_one();

  const std::unique_ptr<Stream> stream_;
  const Failed failed_;
  std::vector<SentCounts> counts_;
  ForwardingSender sender_;
  ForwardingReceiver receiver_;

  std::atomic<bool> leaving_{false};
  std::atomic<bool> closing_{false};
  std::atomic<int> send_error_{0};
  std::chrono::steady_clock::time_point left_at_;
  std::mutex mutex_;
  std::condition_variable ended_one_;
  int threads_ = 0;  // that have not ended
  std::thread sending_, receiving_;
};

}  // namespace narrowcast::channel
