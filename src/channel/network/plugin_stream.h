// A stream over a network plugin of NCCL. Bytes are copied to chunks of registered memory, which the plugin sends, and
// from chunks for which it receives. A TCP connection between the same ranks stays open, over which nothing is sent
// before the end: it tells that the peer has ended, or that its host is lost.
#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "bootstrap/deadline.h"
#include "bootstrap/proof.h"
#include "bootstrap/tcp_connection.h"
#include "bootstrap/world_id.h"
#include "channel/network/net_plugin.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

class PluginStream final : public Stream {
 public:
  // What the peer needs to connect. Copied as bytes between ranks.
  struct Place {
    NetPlugin::Handle handle;
    bootstrap::Challenge challenge;  // the sending end answers it first
  };

  PluginStream(const NetPlugin& plugin, uint32_t device, std::unique_ptr<bootstrap::Connection> connection)
      : plugin_(plugin), device_(device), connection_(std::move(connection)) {}
  ~PluginStream() override;

  // In this order, until connect() sets *connected. Error: SYSTEM_ERROR.
  ncast_status listen(Place* own);
  void meet(const Place& of_peer, const bootstrap::WorldId& secret, int rank, int peer);
  ncast_status connect(bool* connected);

  int send(std::span<iovec> parts) override;
  int receive(std::span<iovec> parts, size_t* bytes) override;
  int receive_all(void* to, size_t bytes) override;
  void shut_down() override;
  std::string describe(int error) const override;

 private:
  static constexpr size_t chunk_bytes = size_t{512} << 10, chunks = 4;
  static_assert(chunks <= NetPlugin::most_requests);

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  // The chunks of one direction, used in turns. Of the thread that sends or receives.
  struct Direction {
    void* comm = nullptr;
    std::unique_ptr<char, Free> memory;
    void* registration = nullptr;
    std::array<void*, chunks> requests = {};
    uint64_t begun = 0, ended = 0;  // numbers of chunks

    char* chunk(uint64_t number) const { return memory.get() + number % chunks * chunk_bytes; }
    void*& request(uint64_t number) { return requests[number % chunks]; }
  };

  ncast_status prepare(Direction& direction);
  int send_parts(std::span<iovec> parts);
  int end_oldest_send();
  int receive_chunk();
  int check_proof();
  template <typename Poll>
  int wait(Poll&& poll);
  int failed(const char* function, int result);
  int watch();
  bool is_missing_bytes() const;

  const NetPlugin& plugin_;
  const uint32_t device_;
  const std::unique_ptr<bootstrap::Connection> connection_;
  Place own_ = {}, of_peer_ = {};
  bootstrap::Proof own_proof_ = {}, peer_proof_ = {};
  void* listening_ = nullptr;
  Direction outgoing_, incoming_;
  bool has_proved_ = false, is_proved_ = false;
  size_t begin_ = 0, end_ = 0;  // what is left of the oldest chunk that has arrived

  uint64_t begun_bytes_ = 0;
  std::atomic<uint64_t> sent_bytes_{0}, received_bytes_{0};
  mutable std::mutex mutex_;
  std::string failure_;     // of the plugin
  int watched_ = 0;         // what watch() has found
  uint64_t peer_sent_ = 0;  // the last message of the peer over TCP: the bytes that it has sent by the plugin
  size_t peer_sent_bytes_ = 0;
  bootstrap::Clock::time_point closed_at_;
  bool is_shut_down_ = false;
};

}  // namespace narrowcast::channel
