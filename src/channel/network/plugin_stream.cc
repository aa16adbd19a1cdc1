#include "channel/network/plugin_stream.h"

#include <cstring>

#include "status/error.h"

namespace narrowcast::channel {

PluginStream::~PluginStream() {
  shut_down();
  for (const Direction* direction : {&outgoing_, &incoming_})
    if (direction->registration != nullptr) plugin_.deregister_memory(direction->comm, direction->registration);
  if (outgoing_.comm != nullptr) plugin_.close_sending(outgoing_.comm);
  if (incoming_.comm != nullptr) plugin_.close_receiving(incoming_.comm);
  if (listening_ != nullptr) plugin_.close_listening(listening_);
}

ncast_status PluginStream::listen(std::string* place) {
  NetPlugin::Handle handle = {};
  if (const int result = plugin_.listen(device_, &handle, &listening_))
    return fail(NCAST_SYSTEM_ERROR, "%s", plugin_.failure("listen", result).c_str());
  place->assign(handle.data(), handle.size());
  return NCAST_OK;
}

ncast_status PluginStream::open(std::string_view place, bool* opened) {
  if (!has_place_) {
    if (place.size() != of_peer_.size()) return fail(NCAST_CORRUPT, "what it sent is not valid");
    std::memcpy(of_peer_.data(), place.data(), place.size());
    has_place_ = true;
  }
  if (outgoing_.comm == nullptr) {
    if (const int result = plugin_.connect(device_, &of_peer_, &outgoing_.comm))
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
  *opened = outgoing_.comm != nullptr && incoming_.comm != nullptr;
  return NCAST_OK;
}

ncast_status PluginStream::prepare(Direction& direction) {
  if (ncast_status status = direction.memory.allocate()) return status;
  if (const int result =
          plugin_.register_memory(direction.comm, direction.memory.all(), Chunks::bytes, &direction.registration))
    return fail(NCAST_SYSTEM_ERROR, "%s", plugin_.failure("regMr", result).c_str());
  return NCAST_OK;
}

int PluginStream::begin_send(uint64_t number, size_t bytes, bool* begun) {
  void*& request = outgoing_.request(number);
  request = nullptr;
  const int result = plugin_.send(outgoing_.comm, outgoing_chunk(number), bytes, outgoing_.registration, &request);
  *begun = request != nullptr;
  return check("isend", result);
}

int PluginStream::poll_sent(uint64_t number, bool* sent) {
  size_t bytes = 0;
  return check("test", plugin_.test(outgoing_.request(number), sent, &bytes));
}

int PluginStream::poll_arrived(const char** data, size_t* bytes) {
  while (posted_ - released_ < chunks) {
    void*& request = incoming_.request(posted_);
    request = nullptr;
    const int result =
        plugin_.receive(incoming_.comm, incoming_.memory.chunk(posted_), chunk_bytes, incoming_.registration, &request);
    if (result != 0) return check("irecv", result);
    if (request == nullptr) break;
    ++posted_;
  }
  if (posted_ == released_) return 0;
  bool done = false;
  const int result = plugin_.test(incoming_.request(released_), &done, bytes);
  if (done) *data = incoming_.memory.chunk(released_);
  return check("test", result);
}

}  // namespace narrowcast::channel
