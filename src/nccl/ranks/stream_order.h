// Keeps the calls of a communicator in the order in which they were made, whether taken or forwarded and whatever their
// streams: NCCL and the engine each see to their own calls alone.
#pragma once

#include <cstdint>

namespace narrowcast::nccl {

// Handles belong to the current device. Each function returns CUresult's number.
class Order {
 public:
  Order() = default;
  ~Order();  // the communicator's calls are done
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;

  // Before and after calls that are taken, or forwarded, are put on a stream.
  int before_taken(void* stream) { return wait_for(forwarded_, stream); }
  int after_taken(void* stream) { return note(&taken_, stream); }
  int before_forwarded(void* stream) { return wait_for(taken_, stream); }
  int after_forwarded(void* stream) { return note(&forwarded_, stream); }

  // Waits until the taken calls are done.
  int synchronize();

 private:
  struct Last {
    void* event = nullptr;
    void* stream = nullptr;
    uint64_t capture = 0;
    bool any = false;
  };
  // Calls that are captured wait for those of the same capture; launches of graphs are the user's to order.
  struct Lasts {
    Last called, captured;
  };
  static int wait_for(const Lasts& lasts, void* stream);
  static int note(Lasts* lasts, void* stream);

  Lasts taken_, forwarded_;
};

}  // namespace narrowcast::nccl
