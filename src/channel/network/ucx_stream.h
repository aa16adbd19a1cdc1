// A stream over UCX, for InfiniBand and RoCE. Chunks are sent as active messages. Unlike tagged messages and UCX's own
// streams, these are dropped if they come from strangers or for a stream that has ended, short ones stay where they
// have arrived until they are read, and long ones are fetched into registered memory. Over TCP all are about as fast.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "channel/network/message_stream.h"
#include "channel/network/ucx_worker.h"

namespace narrowcast::channel {

class UcxStream final : public MessageStream, private UcxWorker::Receiver {
 public:
  UcxStream(std::shared_ptr<UcxWorker> worker, std::unique_ptr<bootstrap::Connection> connection);
  ~UcxStream() override;

 private:
  struct Operation;
  struct Arrival;
  struct State;

  ncast_status listen(std::string* place) override;
  ncast_status open(std::string_view place, bool* opened) override;
  char* outgoing_chunk(uint64_t number) override;
  int begin_send(uint64_t number, size_t bytes, bool* begun) override;
  int poll_sent(uint64_t number, bool* sent) override;
  int poll_arrived(const char** data, size_t* bytes) override;
  void release_arrived() override;
  ucx::Status arrive(uint64_t number, void* data, size_t bytes, bool is_rendezvous) override;

  const UcxLibrary& library() const { return worker_->library(); }
  int check(const char* function, ucx::Status status);
  void find_next();
  template <typename Begin>
  void wait_for(bootstrap::Limit limit, Begin&& begin);

  const std::shared_ptr<UcxWorker> worker_;
  std::unique_ptr<State> state_;
  ucx::Endpoint endpoint_ = nullptr;
  uint64_t key_ = 0, key_of_peer_ = 0;

  std::atomic<uint64_t> arrivals_{0};  // number of messages that have arrived
  // Of the receiving thread.
  uint64_t seen_arrivals_ = 0, next_number_ = 0;
  Arrival* next_ = nullptr;  // NULL if it is to come
};

}  // namespace narrowcast::channel
