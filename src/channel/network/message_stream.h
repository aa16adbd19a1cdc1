// A stream over a network that carries messages. Bytes are copied to chunks of memory, of which each is sent as a
// message. A TCP connection between the same ranks stays open. First it tells each end where to find the other one;
// then nothing is sent over it before the end, so it tells that the peer has ended, or that its host is lost.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "bootstrap/deadline.h"
#include "bootstrap/proof.h"
#include "bootstrap/tcp_connection.h"
#include "bootstrap/world_id.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

class MessageStream : public Stream {
 public:
  // Once, then connect() until it sets *connected: both ends have proved that they know the secret. If the peer fails
  // or ends meanwhile, it is not set. Errors: SYSTEM_ERROR, and CORRUPT if the peer does not know the secret.
  ncast_status begin(const bootstrap::WorldId& secret, int rank, int peer);
  ncast_status connect(bool* connected);

  int send(std::span<iovec> parts) final;
  int receive(std::span<iovec> parts, size_t* bytes) final;
  int receive_all(void* to, size_t bytes) final;
  void shut_down() final;
  std::string describe(int error) const final;

 protected:
  static constexpr size_t chunk_bytes = size_t{512} << 10, chunks = 4;

  // The chunks of one direction, used in turns.
  class Chunks {
   public:
    static constexpr size_t bytes = chunks * chunk_bytes;

    ncast_status allocate();
    char* all() const { return memory_.get(); }
    char* chunk(uint64_t number) const { return memory_.get() + number % chunks * chunk_bytes; }

   private:
    struct Free {
      void operator()(void* memory) const { std::free(memory); }
    };
    std::unique_ptr<char, Free> memory_;
  };

  // The destructors of derived classes begin with shut_down().
  explicit MessageStream(std::unique_ptr<bootstrap::Connection> connection) : connection_(std::move(connection)) {}

  // The functions of the network: none blocks. Those that return an int return 0, or what failed() does. Messages have
  // 1 to chunk_bytes bytes; their numbers count from 0.
  virtual ncast_status listen(std::string* place) = 0;
  // Called until *opened. place: what listen() of the peer returned.
  virtual ncast_status open(std::string_view place, bool* opened) = 0;
  // The memory of a message that is sent: free when the message `chunks` before it has been sent.
  virtual char* outgoing_chunk(uint64_t number) = 0;
  // *begun: false if it is to be called again.
  virtual int begin_send(uint64_t number, size_t bytes, bool* begun) = 0;
  virtual int poll_sent(uint64_t number, bool* sent) = 0;
  // The next message, in the order of sending, valid until it is released. *data stays NULL if it is to come.
  virtual int poll_arrived(const char** data, size_t* bytes) = 0;
  virtual void release_arrived() = 0;

  // Why the stream has ended: that the peer has, if the network noticed it first, or what the network says.
  int failed(const std::string& reason);
  // Whether this end was shut down before the peer was found to have ended.
  bool has_ended_first() const;

 private:
  ncast_status exchange_places();
  ncast_status exchange_proofs(bool* done);
  ncast_status fail_to_connect(int error);
  int send_parts(std::span<iovec> parts);
  int end_oldest_send();
  int receive_message();
  template <typename Poll>
  int wait(Poll&& poll);
  int watch();
  int look();
  bool is_missing_bytes() const;

  const std::unique_ptr<bootstrap::Connection> connection_;
  bootstrap::WorldId secret_ = {};
  int rank_ = 0, peer_ = 0;
  bootstrap::Challenge own_challenge_ = {};
  std::string place_;  // of the peer; empty: not known yet
  bootstrap::Proof own_proof_ = {}, peer_proof_ = {};
  bool is_open_ = false, is_proved_ = false;

  uint64_t begun_ = 0, ended_ = 0;  // numbers of messages that are sent
  const char* arrived_ = nullptr;   // what is left of the oldest message that has arrived
  size_t arrived_bytes_ = 0;

  uint64_t begun_bytes_ = 0;  // without the proof
  std::atomic<uint64_t> sent_bytes_{0}, received_bytes_{0};
  mutable std::mutex mutex_;
  std::string failure_;     // of the network
  int watched_ = 0;         // what watch() has found
  uint64_t peer_sent_ = 0;  // the last message of the peer over TCP: the bytes that it has sent by the network
  size_t peer_sent_bytes_ = 0;
  bootstrap::Clock::time_point closed_at_;
  bool is_shut_down_ = false, has_ended_first_ = false;
};

}  // namespace narrowcast::channel
