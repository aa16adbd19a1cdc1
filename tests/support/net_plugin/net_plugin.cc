// A network plugin of NCCL over TCP, with the table of -DVERSION=6 to 12. It is as awkward as plugins may be:
// nothing is connected at once, requests are NULL at times, sends and receives progress only in test(), and only host
// memory is supported. What a caller must not do ends the process with a message.
//
// NARROWCAST_TEST_NET_ADDRESS=IP      where it listens, instead of loopback
// NARROWCAST_TEST_NET_FAIL=isend:3    the third call of isend fails
// NARROWCAST_TEST_NET_STALL=test:3    from the third call of test on, no request is done
// NARROWCAST_TEST_NET_POINTERS=2      only GPU memory is supported
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace {

#define MUST(condition)                                                                   \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "net_plugin.cc:%d: %s does not hold\n", __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

constexpr int success = 0, system_error = 2, internal_error = 3, remote_error = 6;
constexpr int host_pointers = 1, warning = 2;
constexpr size_t most_requests = VERSION == 6 ? 8 : 32;

using Log = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
using Profile = int (*)(void** event, int type, void* parent, int64_t id, void* data);
Log log_to_caller;
std::atomic<int> callers{0};
std::map<std::string, int> calls;

// "isend:3" in a variable: whether this is such a call.
bool is_chosen(const char* variable, const std::string& function, bool later_ones_too) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || !std::string(text).starts_with(function + ":")) return false;
  const int number = std::atoi(text + function.size() + 1);
  return later_ones_too ? calls[function] >= number : calls[function] == number;
}

// One call at a time.
class Call {
 public:
  explicit Call(const char* function) : function_(function) {
    MUST(callers.fetch_add(1) == 0);
    ++calls[function];
  }
  ~Call() { callers.fetch_sub(1); }
  bool fails() const {
    if (!is_chosen("NARROWCAST_TEST_NET_FAIL", function_, false)) return false;
    log_to_caller(warning, 0, __FILE__, __LINE__, "%s was told to %s", function_, "fail");
    return true;
  }
  int number() const { return calls[function_]; }

 private:
  const char* function_;
};

struct Comm;
struct Request {
  Comm* comm;
  char* data;
  size_t capacity;
  uint64_t bytes;  // sent before the data
  size_t moved = 0;
};
struct Region {
  char* memory;
  size_t bytes;
};
struct Comm {
  int socket;
  bool sends;
  std::deque<Request*> requests = {};
  std::vector<Region*> regions = {};
};

// What is in the 128 bytes of a handle.
struct Place {
  sockaddr_in address;
  uint32_t magic;
  int calls, socket;  // of connect
};
constexpr uint32_t magic = 0x7465737a;

int failed_errno() { return errno == EAGAIN || errno == EINTR ? success : remote_error; }

// Moves a little of the oldest request.
int progress(Comm& comm) {
  constexpr size_t header = sizeof(Request::bytes), most = 3'000;
  Request& request = *comm.requests.front();
  const bool in_header = request.moved < header;
  char* const at =
      in_header ? reinterpret_cast<char*>(&request.bytes) + request.moved : request.data + (request.moved - header);
  const size_t left = (in_header ? header : header + request.bytes) - request.moved;
  const size_t count = left < most ? left : most;
  const ssize_t moved = comm.sends ? send(comm.socket, at, count, MSG_DONTWAIT | MSG_NOSIGNAL)
                                   : recv(comm.socket, at, count, MSG_DONTWAIT);
  if (moved < 0) return failed_errno();
  if (moved == 0) return remote_error;
  request.moved += static_cast<size_t>(moved);
  return request.moved >= header && request.bytes > request.capacity ? internal_error : success;
}

int begin(Comm& comm, char* data, size_t bytes, void* registration, void** request) {
  const auto* const region = static_cast<Region*>(registration);
  MUST(bytes > 0);
  MUST(data >= region->memory && data + bytes <= region->memory + region->bytes);
  MUST(*request == nullptr);
  MUST(comm.requests.size() < most_requests);
  comm.requests.push_back(new Request{&comm, data, bytes, comm.sends ? bytes : 0});
  *request = comm.requests.back();
  return success;
}

[[maybe_unused]] int context;

// --- the functions, with the arguments of the version ---------------------------------------------------------------

struct [[maybe_unused]] Config {
  int traffic_class;
};

#if VERSION >= 11
int init(void** given, uint64_t, Config* config, Log log, Profile profile) {
  MUST(config->traffic_class == -1 && profile != nullptr);
  *given = &context;
#elif VERSION == 10
int init(Log log, Profile profile) {
  MUST(profile != nullptr);
#else
int init(Log log) {
#endif
  log_to_caller = log;
  const Call call("init");
  return call.fails() ? system_error : success;
}

int devices(int* count) {
  *count = 2;
  const Call call("devices");
  return call.fails() ? system_error : success;
}

struct Properties {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int pointers;
#if VERSION >= 8
  int registration_is_global;
#endif
#if VERSION >= 9
  int force_flush;
#endif
  int speed, port;
  float latency;
  int most_comms, most_receives;
#if VERSION >= 7
  int offload_type, offload_version;
#endif
#if VERSION >= 9
  int parts, part[VERSION >= 12 ? 8 : 4];
  size_t most_bytes, most_collective_bytes;
#endif
#if VERSION >= 11
  int most_multi_requests;
#endif
#if VERSION >= 12
  int16_t rail, plane;
#endif
};

int get_properties(int device, Properties* properties) {
  const Call call("getProperties");
  if (call.fails()) return system_error;
  MUST(device == 0 || device == 1);
  *properties = {};
  properties->name = "test device";
  const char* const pointers = std::getenv("NARROWCAST_TEST_NET_POINTERS");
  properties->pointers = pointers == nullptr ? host_pointers : std::atoi(pointers);
  properties->most_receives = 1;
  return success;
}

#if VERSION >= 11
int listen_at(void* given, int device, void* handle, void** comm) {
  MUST(given == &context);
#else
int listen_at(int device, void* handle, void** comm) {
#endif
  const Call call("listen");
  if (call.fails()) return system_error;
  MUST(device == 0 || device == 1);
  Place place = {};
  place.address.sin_family = AF_INET;
  const char* const own = std::getenv("NARROWCAST_TEST_NET_ADDRESS");
  place.address.sin_addr.s_addr = own == nullptr ? htonl(INADDR_LOOPBACK) : inet_addr(own);
  place.magic = magic;
  auto* const address = reinterpret_cast<sockaddr*>(&place.address);
  socklen_t bytes = sizeof place.address;
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (bind(socket, address, bytes) != 0 || ::listen(socket, 8) != 0) return system_error;
  if (getsockname(socket, address, &bytes) != 0) return system_error;
  std::memcpy(handle, &place, sizeof place);
  *comm = new Comm{socket, false};
  return success;
}

#if VERSION >= 11
int connect_to(void* given, int device, void* handle, void** comm, void** offload) {
  MUST(given == &context && *offload == nullptr);
#elif VERSION == 10
int connect_to(int device, Config* config, void* handle, void** comm, void** offload) {
  MUST(config->traffic_class == -1 && *offload == nullptr);
#elif VERSION >= 7
int connect_to(int device, void* handle, void** comm, void** offload) {
  MUST(*offload == nullptr);
#else
int connect_to(int device, void* handle, void** comm) {
#endif
  const Call call("connect");
  if (call.fails()) return system_error;
  MUST(device == 0 || device == 1);
  auto& place = *static_cast<Place*>(handle);
  MUST(place.magic == magic && *comm == nullptr);
  if (place.calls++ == 0) {
    place.socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int result = ::connect(place.socket, reinterpret_cast<sockaddr*>(&place.address), sizeof place.address);
    return result == 0 || errno == EINPROGRESS ? success : system_error;
  }
  pollfd event = {place.socket, POLLOUT, 0};
  if (place.calls > 3 && poll(&event, 1, 0) == 1) *comm = new Comm{place.socket, true};
  return success;
}

#if VERSION >= 7
int accept_from(void* listening, void** comm, void** offload) {
  MUST(*offload == nullptr);
#else
int accept_from(void* listening, void** comm) {
#endif
  const Call call("accept");
  if (call.fails()) return system_error;
  MUST(*comm == nullptr);
  const int socket = accept4(static_cast<Comm*>(listening)->socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket >= 0) *comm = new Comm{socket, false};
  return success;
}

#if VERSION >= 8
int register_memory(void* comm, void* memory, size_t bytes, int type, void** registration) {
#else
int register_memory(void* comm, void* memory, int signed_bytes, int type, void** registration) {
  const auto bytes = static_cast<size_t>(signed_bytes);
#endif
  const Call call("regMr");
  if (call.fails()) return system_error;
  MUST(type == host_pointers && bytes > 0);
  auto* const region = new Region{static_cast<char*>(memory), bytes};
  static_cast<Comm*>(comm)->regions.push_back(region);
  *registration = region;
  return success;
}

int deregister_memory(void* comm, void* registration) {
  const Call call("deregMr");
  std::erase(static_cast<Comm*>(comm)->regions, static_cast<Region*>(registration));
  delete static_cast<Region*>(registration);
  return success;
}

#if VERSION >= 10
int isend(void* comm, void* data, size_t bytes, int tag, void* registration, void* profiled, void** request) {
  MUST(profiled == nullptr);
#elif VERSION == 9
int isend(void* comm, void* data, size_t bytes, int tag, void* registration, void** request) {
#else
int isend(void* comm, void* data, int bytes, int tag, void* registration, void** request) {
#endif
  const Call call("isend");
  if (call.fails()) return system_error;
  MUST(tag == 0 && static_cast<Comm*>(comm)->sends);
  if (call.number() % 3 == 0) return success;  // later
  return begin(*static_cast<Comm*>(comm), static_cast<char*>(data), static_cast<size_t>(bytes), registration, request);
}

#if VERSION >= 10
int irecv(void* comm, int count, void** data, size_t* bytes, int* tags, void** registrations, void** profiled,
          void** request) {
  MUST(profiled[0] == nullptr);
#elif VERSION == 9
int irecv(void* comm, int count, void** data, size_t* bytes, int* tags, void** registrations, void** request) {
#else
int irecv(void* comm, int count, void** data, int* bytes, int* tags, void** registrations, void** request) {
#endif
  const Call call("irecv");
  if (call.fails()) return system_error;
  MUST(count == 1 && tags[0] == 0 && !static_cast<Comm*>(comm)->sends);
  if (call.number() % 2 == 0) return success;  // later
  return begin(*static_cast<Comm*>(comm), static_cast<char*>(data[0]), static_cast<size_t>(bytes[0]), registrations[0],
               request);
}

int test(void* given, int* done, int* bytes) {
  const Call call("test");
  if (call.fails()) return system_error;
  auto* const request = static_cast<Request*>(given);
  Comm& comm = *request->comm;
  *done = 0;
  if (is_chosen("NARROWCAST_TEST_NET_STALL", "test", true)) return success;
  MUST(comm.requests.front() == request);  // the oldest
  const int result = progress(comm);
  if (request->moved <= sizeof request->bytes || request->moved != sizeof request->bytes + request->bytes)
    return result;
  comm.requests.pop_front();
  *done = 1;
  *bytes = static_cast<int>(request->bytes);
  delete request;
  return success;
}

int close_comm(void* given) {
  const Call call("close");
  auto* const comm = static_cast<Comm*>(given);
  MUST(comm->regions.empty());
  for (Request* const request : comm->requests) delete request;
  close(comm->socket);
  delete comm;
  return success;
}

int unused() { std::abort(); }
using Unused = int (*)();

}  // namespace

// In the order of NCCL's headers.
struct Table {
  const char* name = "Test";
  decltype(&init) init_ = init;
  decltype(&devices) devices_ = devices;
  decltype(&get_properties) get_properties_ = get_properties;
  decltype(&listen_at) listen = listen_at;
  decltype(&connect_to) connect = connect_to;
  decltype(&accept_from) accept = accept_from;
  decltype(&register_memory) reg_mr = register_memory;
  Unused reg_mr_dma_buf = unused;
  decltype(&deregister_memory) dereg_mr = deregister_memory;
  decltype(&isend) isend_ = isend;
  decltype(&irecv) irecv_ = irecv;
  Unused iflush = unused;
  decltype(&test) test_ = test;
  decltype(&close_comm) close_send = close_comm, close_recv = close_comm, close_listen = close_comm;
#if VERSION >= 7
  Unused get_device_mr = unused, irecv_consumed = unused;
#endif
#if VERSION >= 9
  Unused make_v_device = unused;
#endif
#if VERSION >= 11
  Unused finalize = unused, set_net_attr = unused;
#endif
};

#define SYMBOL_OF(version) ncclNetPlugin_v##version
#define SYMBOL(version) SYMBOL_OF(version)
extern "C" {
extern const Table SYMBOL(VERSION) __attribute__((visibility("default")));
const Table SYMBOL(VERSION);
}
