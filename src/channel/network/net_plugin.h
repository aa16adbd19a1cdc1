// The network plugins of NCCL: libraries for a kind of network, with a table of functions in one of the versions 6 to
// 12 of NCCL's interface. This file and its source are the only ones that know the versions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "narrowcast/types.h"

namespace narrowcast::channel {

// Functions of the table return 0 or an ncclResult_t. None blocks, and any thread may call them: the plugin gets one
// call at a time, because plugins promise nothing about threads.
class NetPlugin {
 public:
  using Handle = std::array<char, 128>;  // of a place to connect to; plugins keep the state of connect() in it

  // The plugin that NCCL would use: NCCL_NET_PLUGIN names libraries, or their suffixes after "libnccl-net-", by default
  // libnccl-net.so; NCCL_NET the network, if it is set. Loaded by the first call of the process, for good. Error:
  // UNSUPPORTED, which says of every library why it cannot be used.
  static ncast_status load(const NetPlugin** plugin);

  // "AWS Libfabric (version 12)".
  const std::string& name() const { return name_; }
  uint32_t devices() const { return devices_; }

  // A comm of one direction is NULL until it is connected: call again, with the same handle.
  int listen(uint32_t device, Handle* handle, void** comm) const;
  int connect(uint32_t device, Handle* handle, void** comm) const;
  int accept(void* listening, void** comm) const;
  // Registers host memory.
  int register_memory(void* comm, void* memory, size_t bytes, void** registration) const;
  int deregister_memory(void* comm, void* registration) const;
  // A NULL request: try later. Requests of a comm are matched in order; at most `most_requests` at a time.
  static constexpr size_t most_requests = 8;
  int send(void* comm, void* memory, size_t bytes, void* registration, void** request) const;
  int receive(void* comm, void* memory, size_t bytes, void* registration, void** request) const;
  // bytes: of a request that is done.
  int test(void* request, bool* done, size_t* bytes) const;
  int close_listening(void* comm) const;
  int close_sending(void* comm) const;
  int close_receiving(void* comm) const;

  // "isend of the network plugin X (version 9) failed: unhandled system error", and the plugin's last warning.
  std::string failure(const char* function, int result) const;

 private:
  using Function = void (*)();
  // The functions that all versions have, in the order of all versions.
  struct Table {
    const char* name;
    Function init, devices, get_properties, listen, connect, accept, register_memory, register_dma_buffer,
        deregister_memory, send, receive, flush, test, close_sending, close_receiving, close_listening;
  };

  struct Search;

  NetPlugin(const Table& table, int version);
  bool initialize(std::string* why);
  template <typename... Arguments>
  int call(Function function, Arguments... arguments) const;

  const Table& table_;
  const int version_;
  const std::string name_;
  void* context_ = nullptr;
  uint32_t devices_ = 0;
};

}  // namespace narrowcast::channel
