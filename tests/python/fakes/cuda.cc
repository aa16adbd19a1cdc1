// A fake of libcuda.so.1 for machines without a GPU. Device memory is host memory. Work on a stream runs only when a
// caller waits for it, so that missing synchronisation is detected. Built by conftest.py.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

namespace {

using Work = std::function<int()>;

struct Graph {
  std::vector<Work> works;
  uint64_t id = 0;
};

struct Stream {
  std::mutex queue_mutex;
  std::deque<Work> queue;
  uint64_t enqueued = 0;
  Graph* capturing = nullptr;
  std::recursive_mutex running;  // held by the thread that runs the queue
  std::atomic<uint64_t> done{0};
  std::atomic<bool> queried{false};
  std::future<int> answer;
};

// The position in a stream after which an event was recorded.
struct Event {
  Stream* stream = nullptr;
  uint64_t position = 0;
  Graph* graph = nullptr;
  std::shared_ptr<double> milliseconds = std::make_shared<double>(0);
};

constexpr int invalid_value = 1;        // CUDA_ERROR_INVALID_VALUE
constexpr int deadlock = 702;           // CUDA_ERROR_LAUNCH_TIMEOUT
constexpr int not_ready = 600;          // CUDA_ERROR_NOT_READY
constexpr int capture_isolation = 905;  // CUDA_ERROR_STREAM_CAPTURE_ISOLATION
std::mutex streams_mutex;
std::vector<Stream*> streams;
Stream legacy;
std::atomic<int> graphs_alive = 0;
std::atomic<bool> copies_are_wrong = false;  // asynchronous copies to the host
thread_local int pushed_contexts = 0;        // contexts pushed

Stream* stream_of(void* handle) { return handle == nullptr ? &legacy : static_cast<Stream*>(handle); }

int enqueue(void* handle, Work work) {
  Stream* stream = stream_of(handle);
  const std::lock_guard lock(stream->queue_mutex);
  if (stream->capturing != nullptr) {
    stream->capturing->works.push_back(std::move(work));
  } else {
    stream->queue.push_back(std::move(work));
    ++stream->enqueued;
  }
  return 0;
}

int drain(Stream* stream, uint64_t until = UINT64_MAX) {
  if (stream->done.load() >= until) return 0;
  const std::lock_guard lock(stream->running);
  while (stream->done.load() < until) {
    Work work;
    {
      const std::lock_guard queue_lock(stream->queue_mutex);
      if (stream->queue.empty()) return 0;
      work = std::move(stream->queue.front());
      stream->queue.pop_front();
    }
    const int status = work();
    ++stream->done;
    if (status != 0) return status;
  }
  return 0;
}

std::vector<Stream*> all_streams() {
  const std::lock_guard lock(streams_mutex);
  std::vector<Stream*> all = streams;
  all.push_back(&legacy);
  return all;
}

double now_milliseconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

// A property of the machine that a test has set.
int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

}  // namespace

extern "C" {

// For fakes of libraries with kernels.
int fake_launch(void* stream, int (*function)(void*), void* argument) {
  return enqueue(stream, [=] { return function(argument); });
}
void fake_make_copies_wrong() { copies_are_wrong = true; }
int fake_graphs_alive() { return graphs_alive; }

int cuInit(unsigned) { return number_of("NARROWCAST_TEST_CUINIT", 0); }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_OF_THE_FAKE", 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int, int) { return std::strcpy(name, "Fake GPU"), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int capability_major = 75, capability_minor = 76;
  *value = attribute == capability_major   ? number_of("NARROWCAST_TEST_CAPABILITY", 9)
           : attribute == capability_minor ? 0
                                           : 1 << 16;
  return 0;
}
int cuDriverGetVersion(int* version) { return *version = number_of("NARROWCAST_TEST_CUDA_VERSION", 13000), 0; }
int cuDeviceGetCount(int* count) { return *count = number_of("NARROWCAST_TEST_GPUS", 2), 0; }
int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  return std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", 16 + device), 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = size_t{140} << 30, 0; }
int cuDeviceCanAccessPeer(int* can, int, int) { return *can = number_of("NARROWCAST_TEST_PEER_ACCESS", 1), 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<uintptr_t>(device) + 1);
  return 0;
}
int cuCtxGetCurrent(void** context) { return *context = nullptr, 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuCtxPushCurrent_v2(void*) { return ++pushed_contexts, 0; }
int cuCtxPopCurrent_v2(void** context) { return --pushed_contexts, *context = nullptr, 0; }
int cuCtxSynchronize() {
  for (Stream* stream : all_streams()) {
    if (const int status = drain(stream)) return status;
  }
  return 0;
}

int cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
  if (bytes == static_cast<size_t>(number_of("NARROWCAST_TEST_REFUSED_BYTES", 0))) return 2;
  *pointer = reinterpret_cast<uint64_t>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  return *pointer == 0 || pushed_contexts == 0 ? 2 : 0;
}
int cuMemAllocAsync(uint64_t* pointer, size_t bytes, void*) { return cuMemAlloc_v2(pointer, bytes); }
int cuMemFreeAsync(uint64_t pointer, void* stream) {
  return enqueue(stream, [=] { return std::free(reinterpret_cast<void*>(pointer)), 0; });
}
int cuMemFree_v2(uint64_t pointer) {
  if (number_of("NARROWCAST_TEST_FREE_WAITS", 0) != 0) cuCtxSynchronize();  // as the real driver does
  return std::free(reinterpret_cast<void*>(pointer)), 0;
}
int cuMemsetD8_v2(uint64_t pointer, unsigned char byte, size_t bytes) {
  return std::memset(reinterpret_cast<void*>(pointer), byte, bytes), 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), 0;
}
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), 0;
}
// As for pageable memory, the source is read before the call returns.
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  const auto* values = static_cast<const char*>(from);
  return enqueue(stream, [=, kept = std::vector<char>(values, values + bytes)] {
    return cuMemcpyHtoD_v2(to, kept.data(), kept.size());
  });
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return enqueue(stream, [=] {
    cuMemcpyDtoH_v2(to, from, bytes);
    if (copies_are_wrong && bytes != 0) *static_cast<char*>(to) ^= 1;
    return 0;
  });
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return enqueue(stream, [=] { return cuMemcpyDtoD_v2(to, from, bytes); });
}
int cuMemHostAlloc(void** pointer, size_t bytes, unsigned) { return *pointer = std::calloc(1, bytes), 0; }
int cuMemHostGetDevicePointer_v2(uint64_t* device, void* host, unsigned) {
  return *device = reinterpret_cast<uint64_t>(host), 0;
}
int cuMemFreeHost(void* pointer) { return std::free(pointer), 0; }

int cuStreamCreate(void** stream, unsigned) {
  const std::lock_guard lock(streams_mutex);
  streams.push_back(new Stream);
  return *stream = streams.back(), 0;
}
// Runs the work on the stream. The handle is not freed, so that later use is harmless.
int cuStreamDestroy_v2(void* stream) { return stream == nullptr ? invalid_value : drain(stream_of(stream)); }
int cuStreamSynchronize(void* stream) { return drain(stream_of(stream)); }
// Does not wait: the first query starts the work on another thread, and later queries find it complete.
int cuStreamQuery(void* stream) {
  Stream* queried_stream = stream_of(stream);
  if (!queried_stream->queried.exchange(true))
    queried_stream->answer = std::async(std::launch::async, [=] { return drain(queried_stream); });
  if (queried_stream->answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return not_ready;
  queried_stream->queried = false;
  return queried_stream->answer.get();
}
int cuStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void**, const void**, size_t*) {
  const Graph* graph = stream_of(stream)->capturing;
  *status = graph != nullptr ? 1 : 0;
  *id = graph != nullptr ? graph->id : 0;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int thread_mode = 0;
  const int before = thread_mode;
  thread_mode = *mode;
  return *mode = before, 0;
}
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  return enqueue(stream, [=] { return function(argument), 0; });
}
int cuStreamWaitValue32_v2(void* stream, uint64_t address, uint32_t value, unsigned) {
  return enqueue(stream, [=] {
    const double deadline = now_milliseconds() + 20e3;
    while (*reinterpret_cast<volatile uint32_t*>(address) < value) {
      if (now_milliseconds() > deadline) return deadlock;
      usleep(20);
    }
    return 0;
  });
}
int cuStreamBeginCapture_v2(void* stream, unsigned) {
  static std::atomic<uint64_t> captures = 0;
  stream_of(stream)->capturing = new Graph;
  stream_of(stream)->capturing->id = ++captures;
  return 0;
}
int cuStreamEndCapture(void* stream, void** graph) {
  Graph* captured = stream_of(stream)->capturing;
  for (Stream* one : all_streams())
    if (one->capturing == captured) one->capturing = nullptr;
  return *graph = captured, 0;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, uint64_t) {
  ++graphs_alive;
  *executable = new Graph(*static_cast<Graph*>(graph));
  return 0;
}
int cuGraphDestroy(void* graph) { return delete static_cast<Graph*>(graph), 0; }
int cuGraphExecDestroy(void* executable) {
  --graphs_alive;
  return delete static_cast<Graph*>(executable), 0;
}
int cuGraphLaunch(void* executable, void* stream) {
  for (const Work& work : static_cast<Graph*>(executable)->works) enqueue(stream, work);
  return 0;
}

int cuEventCreate(void** event, unsigned) { return *event = new Event, 0; }
int cuEventDestroy_v2(void* event) { return delete static_cast<Event*>(event), 0; }
int cuEventRecord(void* handle, void* stream) {
  auto* event = static_cast<Event*>(handle);
  enqueue(stream, [milliseconds = event->milliseconds] { return *milliseconds = now_milliseconds(), 0; });
  event->stream = stream_of(stream);
  event->graph = event->stream->capturing;
  event->position = event->stream->enqueued;
  return 0;
}
int cuStreamWaitEvent(void* stream, void* handle, unsigned) {
  const Event event = *static_cast<Event*>(handle);
  Stream* waiting = stream_of(stream);
  if (event.stream == nullptr) return 0;
  if (event.graph != nullptr && event.stream->capturing == event.graph) {
    if (waiting->capturing == nullptr) waiting->capturing = event.graph;
    return waiting->capturing == event.graph ? 0 : capture_isolation;
  }
  if (waiting->capturing != nullptr || event.graph != nullptr) return capture_isolation;
  return enqueue(stream, [=] { return drain(event.stream, event.position); });
}
int cuEventSynchronize(void* handle) {
  const auto* event = static_cast<Event*>(handle);
  return event->stream == nullptr ? 0 : drain(event->stream, event->position);
}
int cuEventQuery(void* handle) { return cuEventSynchronize(handle); }
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  *milliseconds =
      static_cast<float>(*static_cast<Event*>(end)->milliseconds - *static_cast<Event*>(start)->milliseconds);
  return 0;
}

}  // extern "C"
