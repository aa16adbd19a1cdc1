// UCX (https://github.com/openucx/ucx), loaded at run time: the part of its C interface that is used here, as in
// ucp/api/ucp.h, ucp/api/ucp_def.h and ucs/type/status.h of versions 1.13 to 1.22. Structs end where the library stops
// reading: at the last field that their mask names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "narrowcast/types.h"

namespace narrowcast::channel {

namespace ucx {

using Status = int8_t;  // ucs_status_t is packed
constexpr Status ok = 0, in_progress = 1;

// ucs_status_ptr_t: NULL if the operation has ended, a Status if it failed, or else a request.
using StatusOrRequest = void*;
inline Status status_of(StatusOrRequest result) {
  const auto value = reinterpret_cast<intptr_t>(result);
  return value <= 0 && value >= -100 ? static_cast<Status>(value) : in_progress;
}

using Config = struct OpaqueConfig*;
using Context = struct OpaqueContext*;
using Worker = struct OpaqueWorker*;
using Endpoint = struct OpaqueEndpoint*;
using Memory = struct OpaqueMemory*;

struct Parameters {
  static constexpr uint64_t with_features = 1;
  static constexpr uint64_t active_messages = 1 << 6;
  uint64_t mask, features;
};

struct WorkerParameters {
  static constexpr uint64_t with_thread_mode = 1;
  static constexpr unsigned one_thread_at_a_time = 1;
  uint64_t mask;
  unsigned thread_mode;
};

struct WorkerAttributes {
  static constexpr uint64_t with_address = 1 << 1, with_address_flags = 1 << 2;
  static constexpr uint32_t of_networks_only = 1;
  uint64_t mask;
  unsigned thread_mode;
  uint32_t address_flags;
  void* address;
  size_t address_bytes;
};

struct EndpointParameters {
  static constexpr uint64_t with_address = 1, with_error_mode = 1 << 1, with_error_handler = 1 << 2;
  static constexpr unsigned peer_may_fail = 1;
  uint64_t mask;
  const void* address;
  unsigned error_mode;
  void (*handle_error)(void* argument, Endpoint endpoint, Status status);
  void* argument;
};

struct MemoryParameters {
  static constexpr uint64_t with_address = 1, with_bytes = 1 << 1, with_memory_type = 1 << 4;
  uint64_t mask;
  void* address;
  size_t bytes;
  unsigned flags, protection, memory_type;
};

inline constexpr unsigned host_memory = 0;

struct RequestParameters {
  static constexpr uint32_t with_callback = 1 << 1, with_argument = 1 << 2, with_flags = 1 << 4,
                            with_memory_type = 1 << 6, with_memory = 1 << 8;
  static constexpr uint32_t force_close = 1;
  uint32_t mask, flags;
  void* request;
  union {
    void (*sent)(void* request, Status status, void* argument);
    void (*received)(void* request, Status status, size_t bytes, void* argument);
  } callback;
  uint64_t datatype;
  void* argument;
  void* reply_buffer;
  unsigned memory_type;
  void* receive_info;
  Memory memory;
};

struct ArrivalParameters {
  static constexpr uint64_t rendezvous = 1 << 17;  // the data is still at the sender
  uint64_t attributes;
  Endpoint reply_to;
};

struct HandlerParameters {
  static constexpr uint64_t with_id = 1, with_flags = 1 << 1, with_handler = 1 << 2, with_argument = 1 << 3;
  static constexpr uint32_t data_persists = 1 << 1;  // if the handler returns in_progress
  uint64_t mask;
  unsigned id;
  uint32_t flags;
  Status (*handle)(void* argument, const void* header, size_t header_bytes, void* data, size_t bytes,
                   const ArrivalParameters* parameters);
  void* argument;
};

}  // namespace ucx

class UcxLibrary {
 public:
  // Names the library that is used instead of those that are found.
  static constexpr const char* path_variable = "NARROWCAST_UCX";

  // Loaded by the first call of the process, for good: what NARROWCAST_UCX names, or else the system's libucp.so.0, or
  // else that of the Python package libucx. Error: UNSUPPORTED, which says where it was looked for.
  static ncast_status load(const UcxLibrary** library);
  // Whether this host has InfiniBand, RoCE or similar devices. Nothing is loaded.
  static bool host_has_rdma();

  // "UCX 1.22.0".
  const std::string& name() const { return name_; }
  // Its transports for networks, such as "tcp" or "rc_mlx5, ud_mlx5, tcp".
  const std::string& transports() const { return transports_; }
  bool has_rdma() const { return !transports_.empty() && transports_ != "tcp"; }

  // "ucp_ep_create of UCX 1.22.0 failed: Destination is unreachable".
  std::string failure(const char* function, ucx::Status status) const;

  // With the settings of the environment (UCX_...). Error: SYSTEM_ERROR.
  ncast_status make_context(ucx::Context* context) const;

  void (*cleanup)(ucx::Context);
  ucx::Status (*worker_create)(ucx::Context, const ucx::WorkerParameters*, ucx::Worker*);
  void (*worker_destroy)(ucx::Worker);
  ucx::Status (*worker_query)(ucx::Worker, ucx::WorkerAttributes*);
  void (*worker_release_address)(ucx::Worker, void*);
  unsigned (*worker_progress)(ucx::Worker);
  ucx::Status (*worker_set_am_recv_handler)(ucx::Worker, const ucx::HandlerParameters*);
  ucx::Status (*ep_create)(ucx::Worker, const ucx::EndpointParameters*, ucx::Endpoint*);
  ucx::StatusOrRequest (*ep_flush)(ucx::Endpoint, const ucx::RequestParameters*);
  ucx::StatusOrRequest (*ep_close)(ucx::Endpoint, const ucx::RequestParameters*);
  ucx::Status (*mem_map)(ucx::Context, const ucx::MemoryParameters*, ucx::Memory*);
  ucx::Status (*mem_unmap)(ucx::Context, ucx::Memory);
  ucx::StatusOrRequest (*am_send)(ucx::Endpoint, unsigned id, const void* header, size_t header_bytes, const void* data,
                                  size_t bytes, const ucx::RequestParameters*);
  ucx::StatusOrRequest (*am_receive)(ucx::Worker, void* arrival, void* to, size_t bytes, const ucx::RequestParameters*);
  void (*am_data_release)(ucx::Worker, void* data);
  ucx::Status (*request_check_status)(void* request);
  void (*request_free)(void* request);

 private:
  struct Search;

  bool initialize(void* library, std::string* why);
  template <typename Function>
  bool find(void* library, const char* symbol, Function*& function, std::string* why);

  void (*get_version_)(unsigned* major, unsigned* minor, unsigned* release);
  ucx::Status (*init_version_)(unsigned major, unsigned minor, const ucx::Parameters*, ucx::Config, ucx::Context*);
  ucx::Status (*config_read_)(const char* prefix, const char* file, ucx::Config*);
  void (*config_release_)(ucx::Config);
  void (*context_print_info_)(ucx::Context, FILE*);
  const char* (*status_string_)(ucx::Status);
  std::string name_, transports_;
};

// Those of networks in what ucp_context_print_info() prints, separated by commas.
std::string network_transports_in(std::string_view info);

}  // namespace narrowcast::channel
