#include "nccl/ranks/stream_order.h"

#include <initializer_list>

#include "nccl/libraries/cuda_driver.h"

namespace narrowcast::nccl {
namespace {

// CU_STREAM_PER_THREAD is another stream in every thread.
bool is_same_stream(const void* one, const void* other) {
  return one == other && reinterpret_cast<uintptr_t>(one) != 2;
}

}  // namespace

Order::~Order() {
  for (const Last* last : {&taken_.called, &taken_.captured, &forwarded_.called, &forwarded_.captured})
    if (last->event != nullptr) driver()->cuEventDestroy_v2(last->event);
}

int Order::wait_for(const Lasts& lasts, void* stream) {
  const uint64_t capture = capture_of(stream);
  const Last& last = capture != 0 ? lasts.captured : lasts.called;
  if (!last.any || is_same_stream(last.stream, stream) || last.capture != capture) return 0;
  return driver()->cuStreamWaitEvent(stream, last.event, 0);
}

int Order::note(Lasts* lasts, void* stream) {
  const uint64_t capture = capture_of(stream);
  Last& last = capture != 0 ? lasts->captured : lasts->called;
  if (last.event == nullptr) {
    if (const int failed = driver()->cuEventCreate(&last.event, event_without_time)) return failed;
  }
  last.any = true;
  last.stream = stream;
  last.capture = capture;
  return driver()->cuEventRecord(last.event, stream);
}

int Order::synchronize() { return taken_.called.any ? driver()->cuEventSynchronize(taken_.called.event) : 0; }

}  // namespace narrowcast::nccl
