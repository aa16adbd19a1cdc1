// The connection to a peer on another host. Two threads make the memory of both ranks equal: one sends the slots that
// this rank has filled, those that it has freed, and what it has published; the other stores what the peer sends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "bootstrap/tcp_connection.h"
#include "channel/host/control_block.h"
#include "channel/host/ring.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

class Link {
 public:
  // own: the block of this host. of_peer: memory of this process for the state of the peer. outgoing, incoming: the
  // rings of RingShape `shape` to and from the peer, zeroed.
  struct Memory {
    ControlBlock& own;
    ControlBlock& of_peer;
    void* outgoing;
    void* incoming;
    RingShape shape;
  };

  Link(int rank, int peer, std::unique_ptr<Stream> stream, const Memory& memory);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // Waits at most a second for the peer to receive what was sent.
  ~Link();

  // Once, when both ends are ready. Error: SYSTEM_ERROR.
  ncast_status start();
  // Announces that this rank leaves, after the slots that it has filled. Does not block.
  void leave();

  // Notify it after a change of the memory, so that the peer gets to know.
  Doorbell& bell() { return bell_; }
  // Whether nothing more will come from the peer.
  bool has_ended() const;
  // Fails with the reason for that. name: of the peer.
  ncast_status fail_of_end(const std::string& name) const;

 private:
  // An end of a ring whose other end is on the other host.
  class Outgoing;
  class Incoming;

  void send();
  bool send_published();
  bool send_tag(uint32_t kind, const PublishedTag& tag, uint64_t* sent_version);
  bool send_message(uint32_t kind, int32_t value, const void* content = nullptr, size_t bytes = 0,
                    const void* payload = nullptr, size_t payload_bytes = 0);
  void receive();
  bool handle(const bootstrap::MessageHeader& header);
  bool store_slot(uint64_t bytes);
  bool store_failure(uint64_t bytes);
  bool read(void* to, size_t bytes);
  void end(int error);

  const int rank_;
  const int peer_;
  const std::unique_ptr<Stream> stream_;
  ControlBlock& own_;
  ControlBlock& of_peer_;
  const std::unique_ptr<Outgoing> outgoing_;
  const std::unique_ptr<Incoming> incoming_;
  Doorbell bell_;

  // Of the sending thread.
  uint64_t sent_current_ = 0, sent_collective_ = 0;  // versions
  uint32_t sent_in_call_ = 0;
  bool sent_failure_ = false;

  std::atomic<bool> leaving_{false};
  std::atomic<bool> peer_has_left_{false};  // the sending thread confirms it
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool confirmed_ = false;  // the peer knows that this rank has left
  bool ended_ = false;
  int error_ = 0;

  std::thread sender_, receiver_;
};

}  // namespace narrowcast::channel
