// A stream over a network plugin of NCCL, which sends from registered memory, and receives to posted chunks.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "channel/network/message_stream.h"
#include "channel/network/net_plugin.h"

namespace narrowcast::channel {

class PluginStream final : public MessageStream {
 public:
  PluginStream(const NetPlugin& plugin, uint32_t device, std::unique_ptr<bootstrap::Connection> connection)
      : MessageStream(std::move(connection)), plugin_(plugin), device_(device) {}
  ~PluginStream() override;

 private:
  static_assert(chunks <= NetPlugin::most_requests);

  // Of the thread that sends or receives.
  struct Direction {
    void* comm = nullptr;
    Chunks memory;
    void* registration = nullptr;
    std::array<void*, chunks> requests = {};

    void*& request(uint64_t number) { return requests[number % chunks]; }
  };

  ncast_status listen(std::string* place) override;
  ncast_status open(std::string_view place, bool* opened) override;
  char* outgoing_chunk(uint64_t number) override { return outgoing_.memory.chunk(number); }
  int begin_send(uint64_t number, size_t bytes, bool* begun) override;
  int poll_sent(uint64_t number, bool* sent) override;
  int poll_arrived(const char** data, size_t* bytes) override;
  void release_arrived() override { ++released_; }
  ncast_status prepare(Direction& direction);
  int check(const char* function, int result) { return result == 0 ? 0 : failed(plugin_.failure(function, result)); }

  const NetPlugin& plugin_;
  const uint32_t device_;
  NetPlugin::Handle of_peer_ = {};
  bool has_place_ = false;
  void* listening_ = nullptr;
  Direction outgoing_, incoming_;
  uint64_t posted_ = 0, released_ = 0;  // numbers of receives
};

}  // namespace narrowcast::channel
