// A worker of UCX, which carries the messages of streams to several peers, one each: workers with several connections
// to each other would not know which endpoints are the two ends of one. Streams of other flows and communicators use
// other workers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "channel/network/ucx_library.h"

namespace narrowcast::channel {

class UcxWorker {
 public:
  static constexpr unsigned message_id = 0;
  // Precedes each message.
  struct Header {
    uint64_t key;     // of the receiver
    uint64_t number;  // messages may overtake each other
  };
  class Receiver {
   public:
    // Called with the lock. Returns ucx::in_progress to keep the data until it is released or received, or ucx::ok.
    virtual ucx::Status arrive(uint64_t number, void* data, size_t bytes, bool is_rendezvous) = 0;

   protected:
    ~Receiver() = default;
  };

  // Error: SYSTEM_ERROR.
  static ncast_status create(const UcxLibrary& library, std::shared_ptr<UcxWorker>* worker);
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  const UcxLibrary& library() const { return library_; }
  const std::string& address() const { return address_; }

  // Hold it in every call of the library with these: many versions are built for one thread at a time.
  std::mutex& mutex() { return mutex_; }
  ucx::Context context() const { return context_; }
  ucx::Worker get() const { return worker_; }

  // Gets on with the operations of all streams, unless another thread does so.
  void progress();

  // With the lock: the receiver of messages with this key. What arrives for others is dropped.
  void add(uint64_t key, Receiver* receiver) { receivers_[key] = receiver; }
  void remove(uint64_t key) { receivers_.erase(key); }

 private:
  explicit UcxWorker(const UcxLibrary& library) : library_(library) {}
  ncast_status initialize();

  const UcxLibrary& library_;
  std::mutex mutex_;
  ucx::Context context_ = nullptr;
  ucx::Worker worker_ = nullptr;
  std::string address_;
  std::unordered_map<uint64_t, Receiver*> receivers_;
};

}  // namespace narrowcast::channel
