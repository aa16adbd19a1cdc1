// Stands for libcuda.so.1 where there is no GPU: device memory is host memory, and what is put on a stream runs when
// somebody waits for it, so that an order that only luck would give is seen. Built by the tests of the benchmark.
#include <sched.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

namespace {

using Work = std::function<int()>;

struct Graph {
  std::vector<Work> works;
};

struct Stream {
  std::vector<Work> queue;
  Graph* capturing = nullptr;
};

struct Event {
  double milliseconds = 0;
};

constexpr int deadlock = 702;  // CUDA_ERROR_LAUNCH_TIMEOUT
std::vector<Stream*> streams;
int graphs_alive = 0;
int current = 0;  // contexts pushed

int enqueue(void* handle, Work work) {
  auto* stream = static_cast<Stream*>(handle);
  (stream->capturing != nullptr ? stream->capturing->works : stream->queue).push_back(std::move(work));
  return 0;
}

int drain(Stream* stream) {
  const std::vector<Work> works = std::move(stream->queue);
  stream->queue.clear();
  for (const Work& work : works) {
    if (const int status = work()) return status;
  }
  return 0;
}

double now_milliseconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

// What a test wants of the machine.
int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

}  // namespace

extern "C" {

// For what stands for libraries with kernels.
int fake_launch(void* stream, int (*function)(void*), void* argument) {
  return enqueue(stream, [=] { return function(argument); });
}
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
int cuCtxPushCurrent_v2(void*) { return ++current, 0; }
int cuCtxPopCurrent_v2(void** context) { return --current, *context = nullptr, 0; }
int cuCtxSynchronize() {
  for (Stream* stream : streams) {
    if (const int status = drain(stream)) return status;
  }
  return 0;
}

int cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
  *pointer = reinterpret_cast<uint64_t>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  return *pointer == 0 || current == 0 ? 2 : 0;
}
int cuMemFree_v2(uint64_t pointer) { return std::free(reinterpret_cast<void*>(pointer)), 0; }
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
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return enqueue(stream, [=] { return cuMemcpyDtoD_v2(to, from, bytes); });
}
int cuMemHostAlloc(void** pointer, size_t bytes, unsigned) { return *pointer = std::calloc(1, bytes), 0; }
int cuMemHostGetDevicePointer_v2(uint64_t* device, void* host, unsigned) {
  return *device = reinterpret_cast<uint64_t>(host), 0;
}
int cuMemFreeHost(void* pointer) { return std::free(pointer), 0; }

int cuStreamCreate(void** stream, unsigned) {
  streams.push_back(new Stream);
  return *stream = streams.back(), 0;
}
int cuStreamSynchronize(void* stream) { return drain(static_cast<Stream*>(stream)); }
int cuStreamWaitValue32_v2(void* stream, uint64_t address, uint32_t value, unsigned) {
  return enqueue(stream, [=] {
    const double give_up = now_milliseconds() + 20e3;
    while (*reinterpret_cast<volatile uint32_t*>(address) < value) {
      if (now_milliseconds() > give_up) return deadlock;
      sched_yield();
    }
    return 0;
  });
}
int cuStreamBeginCapture_v2(void* stream, unsigned) {
  static_cast<Stream*>(stream)->capturing = new Graph;
  return 0;
}
int cuStreamEndCapture(void* stream, void** graph) {
  *graph = static_cast<Stream*>(stream)->capturing;
  static_cast<Stream*>(stream)->capturing = nullptr;
  return 0;
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
int cuEventRecord(void* event, void* stream) {
  return enqueue(stream, [=] { return static_cast<Event*>(event)->milliseconds = now_milliseconds(), 0; });
}
int cuEventSynchronize(void*) { return cuCtxSynchronize(); }
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  *milliseconds = static_cast<float>(static_cast<Event*>(end)->milliseconds - static_cast<Event*>(start)->milliseconds);
  return 0;
}

}  // extern "C"
