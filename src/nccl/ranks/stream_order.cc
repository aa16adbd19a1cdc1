#include "nccl/ranks/stream_order.h"

#include <initializer_list>

#include "nccl/libraries/cuda_driver.h"

namespace narrowcast::nccl {
namespace {

constexpr uintptr_t stream_per_thread = 2;  // CU_STREAM_PER_THREAD: a different stream in every thread

bool is_same_stream(const void* one, const void* other) {
  return one == other && reinterpret_cast<uintptr_t>(one) != stream_per_thread;
}

}  // namespace

StreamOrder::~StreamOrder() {
  for (const LastCall* last : {&engine_.eager, &engine_.captured, &nccl_.eager, &nccl_.captured})
    if (last->event != nullptr) driver()->cuEventDestroy_v2(last->event);
}

int StreamOrder::wait_for(const LastCalls& calls, void* stream) {
  if (!calls.eager.any && !calls.captured.any) return 0;
  const uint64_t capture = capture_id(stream);
  const LastCall& last = capture != 0 ? calls.captured : calls.eager;
  if (!last.any || is_same_stream(last.stream, stream) || last.capture != capture) return 0;
  return driver()->cuStreamWaitEvent(stream, last.event, 0);
}

int StreamOrder::record(LastCalls* calls, void* stream) {
  const uint64_t capture = capture_id(stream);
  LastCall& last = capture != 0 ? calls->captured : calls->eager;
  if (last.event == nullptr) {
    if (const int failed = driver()->cuEventCreate(&last.event, event_without_time)) return failed;
  }
  last.any = true;
  last.stream = stream;
  last.capture = capture;
  return driver()->cuEventRecord(last.event, stream);
}

int StreamOrder::synchronize() { return engine_.eager.any ? driver()->cuEventSynchronize(engine_.eager.event) : 0; }

}  // namespace narrowcast::nccl
