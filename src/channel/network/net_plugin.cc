#include "channel/network/net_plugin.h"

#include <dlfcn.h>
#include <strings.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>

#include "status/error.h"

namespace narrowcast::channel {
namespace {

constexpr int newest_version = 12, oldest_version = 6;

std::string value_of(const char* variable, const char* otherwise) {
  const char* const value = secure_getenv(variable);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

std::mutex one_call_at_a_time;

std::mutex warning_mutex;
std::string& last_warning = *new std::string;  // threads of plugins may log until the process ends

// As NCCL's ncclDebugLogger_t.
__attribute__((format(printf, 5, 6))) void log_warning(int level, unsigned long, const char*, int, const char* format,
                                                       ...) {
  constexpr int warning = 2;
  if (level != warning) return;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(warning_mutex);
  last_warning = text;
}

// As NCCL's ncclProfilerCallback_t.
int profile(void**, int, void*, int64_t, void*) { return 0; }

// ncclNetCommConfig_t of versions 10 to 12.
struct Config {
  int traffic_class = -1;  // undefined
};

// The begin of ncclNetProperties_t in all versions, and room for the longest.
struct Properties {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_types;
  char rest[484];
};
constexpr int host_pointers = 1;

const char* text_of(int result) {
  static constexpr const char* texts[] = {"success",
                                          "unhandled CUDA error",
                                          "unhandled system error",
                                          "internal error",
                                          "invalid argument",
                                          "invalid usage",
                                          "remote process exited or network error"};
  return result >= 0 && static_cast<size_t>(result) < std::size(texts) ? texts[result] : "unknown error";
}

// Opens a library as NCCL does. Appends to *why for each name that is not found.
void* open_library(const std::string& name, std::string* why) {
  const bool is_file = name.find('/') != std::string::npos || (name.starts_with("lib") && name.ends_with(".so"));
  for (const std::string& file : {name, is_file ? "" : "libnccl-net-" + name + ".so"}) {
    if (file.empty()) continue;
    if (void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    *why += std::string("; ") + dlerror();
  }
  return nullptr;
}

}  // namespace

// For a plugin, and its result.
struct NetPlugin::Search {
  std::unique_ptr<NetPlugin> plugin;
  std::string why;  // there is none

  Search() {
    const std::string names = value_of("NCCL_NET_PLUGIN", "libnccl-net.so");
    if (strcasecmp(names.c_str(), "none") == 0) {
      why = "; NCCL_NET_PLUGIN is " + names;
      return;
    }
    for (std::string_view rest = names; !rest.empty() && plugin == nullptr;) {
      const std::string name(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(name.size() + 1, rest.size()));
      if (void* const library = name.empty() ? nullptr : open_library(name, &why)) use(library, name);
    }
  }

 private:
  void use(void* library, const std::string& name) {
    std::string reason = "it has no table of version " + std::to_string(oldest_version) + " to " +
                         std::to_string(newest_version) + " of NCCL's interface";
    for (int version = newest_version; version >= oldest_version; --version) {
      const std::string symbol = "ncclNetPlugin_v" + std::to_string(version);
      const auto* const table = static_cast<const Table*>(dlsym(library, symbol.c_str()));
      if (table == nullptr) continue;
      std::unique_ptr<NetPlugin> found(new NetPlugin(*table, version));
      if (found->initialize(&reason)) plugin = std::move(found);
      break;
    }
    // Not closed: what a plugin has begun may still run.
    if (plugin == nullptr) why += "; " + name + ": " + reason;
  }
};

ncast_status NetPlugin::load(const NetPlugin** plugin) {
  static const Search& search = *new Search;  // threads may use it until the process ends
  *plugin = search.plugin.get();
  if (*plugin != nullptr) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED, "no network plugin of NCCL can be used%s", search.why.c_str());
}

NetPlugin::NetPlugin(const Table& table, int version)
    : table_(table), version_(version), name_(std::string(table.name) + " (version " + std::to_string(version) + ")") {}

bool NetPlugin::initialize(std::string* why) {
  const std::string wanted = value_of("NCCL_NET", table_.name);
  if (strcasecmp(wanted.c_str(), table_.name) != 0) {
    *why = std::string("it is for the network ") + table_.name + ", but NCCL_NET is " + wanted;
    return false;
  }
  Config config;
  int result = version_ >= 11   ? call(table_.init, &context_, uint64_t{0}, &config, &log_warning, &profile)
               : version_ == 10 ? call(table_.init, &log_warning, &profile)
                                : call(table_.init, &log_warning);
  if (result != 0) {
    *why = failure("init", result);
    return false;
  }
  int devices = 0;
  result = call(table_.devices, &devices);
  if (result != 0 || devices <= 0) {
    *why = result != 0 ? failure("devices", result) : "it finds no devices";
    return false;
  }
  for (int device = 0; device < devices; ++device) {
    Properties properties = {};
    result = call(table_.get_properties, device, &properties);
    if (result != 0 || (properties.pointer_types & host_pointers) == 0) {
      *why = result != 0 ? failure("getProperties", result) : "it does not support host memory";
      return false;
    }
  }
  devices_ = static_cast<uint32_t>(devices);
  return true;
}

// The types of the arguments are those of the version.
template <typename... Arguments>
int NetPlugin::call(Function function, Arguments... arguments) const {
  const std::lock_guard lock(one_call_at_a_time);
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

int NetPlugin::listen(uint32_t device, Handle* handle, void** comm) const {
  const auto number = static_cast<int>(device % devices_);
  return version_ >= 11 ? call(table_.listen, context_, number, handle, comm)
                        : call(table_.listen, number, handle, comm);
}

int NetPlugin::connect(uint32_t device, Handle* handle, void** comm) const {
  const auto number = static_cast<int>(device % devices_);
  void* offload = nullptr;  // of the connection to a GPU: not wanted
  Config config;
  if (version_ >= 11) return call(table_.connect, context_, number, handle, comm, &offload);
  if (version_ == 10) return call(table_.connect, number, &config, handle, comm, &offload);
  if (version_ >= 7) return call(table_.connect, number, handle, comm, &offload);
  return call(table_.connect, number, handle, comm);
}

int NetPlugin::accept(void* listening, void** comm) const {
  void* offload = nullptr;
  return version_ >= 7 ? call(table_.accept, listening, comm, &offload) : call(table_.accept, listening, comm);
}

int NetPlugin::register_memory(void* comm, void* memory, size_t bytes, void** registration) const {
  return version_ >= 8
             ? call(table_.register_memory, comm, memory, bytes, host_pointers, registration)
             : call(table_.register_memory, comm, memory, static_cast<int>(bytes), host_pointers, registration);
}

int NetPlugin::deregister_memory(void* comm, void* registration) const {
  return call(table_.deregister_memory, comm, registration);
}

int NetPlugin::send(void* comm, void* memory, size_t bytes, void* registration, void** request) const {
  constexpr int tag = 0;
  void* const profiled = nullptr;
  if (version_ >= 10) return call(table_.send, comm, memory, bytes, tag, registration, profiled, request);
  if (version_ == 9) return call(table_.send, comm, memory, bytes, tag, registration, request);
  return call(table_.send, comm, memory, static_cast<int>(bytes), tag, registration, request);
}

int NetPlugin::receive(void* comm, void* memory, size_t bytes, void* registration, void** request) const {
  constexpr int count = 1;
  int tag = 0, short_bytes = static_cast<int>(bytes);
  void* profiled = nullptr;
  if (version_ >= 10)
    return call(table_.receive, comm, count, &memory, &bytes, &tag, &registration, &profiled, request);
  if (version_ == 9) return call(table_.receive, comm, count, &memory, &bytes, &tag, &registration, request);
  return call(table_.receive, comm, count, &memory, &short_bytes, &tag, &registration, request);
}

int NetPlugin::test(void* request, bool* done, size_t* bytes) const {
  int is_done = 0, size = 0;
  const int result = call(table_.test, request, &is_done, &size);
  *done = result == 0 && is_done != 0;
  *bytes = static_cast<size_t>(size);  // a negative one becomes too large
  return result;
}

int NetPlugin::close_listening(void* comm) const { return call(table_.close_listening, comm); }
int NetPlugin::close_sending(void* comm) const { return call(table_.close_sending, comm); }
int NetPlugin::close_receiving(void* comm) const { return call(table_.close_receiving, comm); }

std::string NetPlugin::failure(const char* function, int result) const {
  const std::lock_guard lock(warning_mutex);
  return std::string(function) + " of the network plugin " + name_ + " failed: " + text_of(result) +
         (last_warning.empty() ? "" : "; its last warning: " + last_warning);
}

}  // namespace narrowcast::channel
