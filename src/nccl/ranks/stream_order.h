// Keeps the calls of a communicator in the order in which they were made, on any streams, when some run on the engine
// and others in NCCL. Each of the two orders only its own calls.
#pragma once

#include <cstdint>

namespace narrowcast::nccl {

// Handles belong to the current device. Each function returns a CUresult.
class StreamOrder {
 public:
  StreamOrder() = default;
  ~StreamOrder();  // requires that the communicator's calls are complete
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // Called before and after calls of the engine, or of NCCL, are put on a stream.
  int before_engine(void* stream) { return wait_for(nccl_, stream); }
  int after_engine(void* stream) { return record(&engine_, stream); }
  int before_nccl(void* stream) { return wait_for(engine_, stream); }
  int after_nccl(void* stream) { return record(&nccl_, stream); }

  // Waits until the engine's calls are complete.
  int synchronize();

 private:
  struct LastCall {
    void* event = nullptr;
    void* stream = nullptr;
    uint64_t capture = 0;
    bool any = false;
  };
  // Captured calls wait for calls of the same capture. The program orders the launches of its graphs.
  struct LastCalls {
    LastCall eager, captured;
  };
  static int wait_for(const LastCalls& last, void* stream);
  static int record(LastCalls* last, void* stream);

  LastCalls engine_, nccl_;
};

}  // namespace narrowcast::nccl
