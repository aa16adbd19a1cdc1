#include "nccl/libraries/engine.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "nccl/libraries/backend.h"
#include "nccl/libraries/symbols.h"
#include "nccl/report/last_error.h"
#include "nccl/report/log.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {
namespace {

// NCCL has 24. Between two H200, matrix products beside these calls lose more time with 40, and the calls are slower
// with 16 (docs/performance.md).
constexpr uint32_t ctas_beside_compute = 28;

constexpr const char* soname = "libnarrowcast.so.0";

// In this order: NARROWCAST_LIBRARY, beside the drop-in, by the loader.
void* open_library() {
  if (const char* const named = secure_getenv("NARROWCAST_LIBRARY"); named != nullptr && *named != '\0')
    return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&engine), &self) != 0) {
    const std::string own = self.dli_fname;
    const std::string beside = own.substr(0, own.rfind('/') + 1) + soname;
    if (void* const library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return dlopen(soname, RTLD_NOW | RTLD_LOCAL);
}

const Engine* load_engine() {
  void* const library = open_library();
  if (library == nullptr) {
    log(Level::warn, "libnarrowcast.so cannot be loaded, so all calls are forwarded to NCCL: %s", dlerror());
    return nullptr;
  }
  auto* const found = new Engine;  // never freed: calls may come until the process ends
  SymbolTable functions(library);
#define FIND(name) functions.find(&found->ncast_##name, "ncast_" #name);
  ENGINE_FUNCTIONS(FIND)
#undef FIND
  if (functions.missing() != nullptr) {
    log(Level::warn, "libnarrowcast.so is of another release: it has no %s, so all calls are forwarded to NCCL",
        functions.missing());
    delete found;
    return nullptr;
  }
  return found;
}

}  // namespace

const Engine* engine() {
  static const Engine* const the = load_engine();
  return the;
}

void limit_ctas(uint32_t max_ctas, ncast_comm_config* config) {
  const bool is_set = max_ctas != environment::unset_ctas;
  config->max_ctas = is_set ? max_ctas : environment::most_ctas;
  config->max_collective_ctas = is_set ? 0 : ctas_beside_compute;
}

ncast_comm_config config_from_settings(const Engine& narrowcast) {
  ncast_comm_config config;
  narrowcast.ncast_comm_config_defaults(&config, sizeof config);
  config.backend = backend.id;
  config.scratch_bytes = static_cast<size_t>(settings().scratch_bytes);
  limit_ctas(settings().max_ctas, &config);
  config.p2p = settings().p2p ? 1 : 0;
  config.cost_model = settings().cost_model.c_str();
  return config;
}

Explained explain(ncast_comm* comm, Operation operation, size_t count, ncast_dtype dtype, ncast_codec codec) {
  const Engine& narrowcast = *engine();
  ncast_explanation* explanation = nullptr;
  Explained result;
  if (narrowcast.ncast_comm_explain(comm, operation, count, dtype, codec, &explanation) != NCAST_OK) return result;
  ncast_decision decision = {};
  decision.struct_bytes = sizeof decision;
  if (narrowcast.ncast_explanation_decision(explanation, &decision) == NCAST_OK)
    result = {decision.candidate, decision.link};
  narrowcast.ncast_explanation_destroy(explanation);
  return result;
}

ncast_status run_on_engine(const Call& c, ncast_codec codec, std::optional<ncast_codec> result_codec, ncast_comm* comm,
                           CudaStream stream) {
  const Engine& narrowcast = *engine();
  const auto dtype = static_cast<ncast_dtype>(c.dtype);
  const auto op = c.factor ? NCAST_SUM : static_cast<ncast_redop>(c.redop);
  if (c.factor || result_codec) {
    ncast_reduction_options options = {};
    options.struct_bytes = sizeof options;
    if (c.factor) options.device_factor = c.factor->in_memory;
    if (c.factor && c.factor->in_memory == nullptr) options.factor = &c.factor->value;
    if (result_codec) options.result_codec = &*result_codec;
    return narrowcast.ncast_run_reduction(c.operation, c.send, c.recv, c.count, dtype, op, c.peer, codec, &options,
                                          comm, stream);
  }
  switch (c.operation) {
    case NCAST_OP_SEND: return narrowcast.ncast_send(c.send, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_RECV: return narrowcast.ncast_recv(c.recv, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_BROADCAST:
      return narrowcast.ncast_broadcast(c.send, c.recv, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_REDUCE:
      return narrowcast.ncast_reduce(c.send, c.recv, c.count, dtype, op, c.peer, codec, comm, stream);
    case NCAST_OP_GATHER: return narrowcast.ncast_gather(c.send, c.recv, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_SCATTER: return narrowcast.ncast_scatter(c.send, c.recv, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_ALL_GATHER: return narrowcast.ncast_all_gather(c.send, c.recv, c.count, dtype, codec, comm, stream);
    case NCAST_OP_ALL_TO_ALL: return narrowcast.ncast_all_to_all(c.send, c.recv, c.count, dtype, codec, comm, stream);
    case NCAST_OP_REDUCE_SCATTER:
      return narrowcast.ncast_reduce_scatter(c.send, c.recv, c.count, dtype, op, codec, comm, stream);
    case NCAST_OP_ALL_REDUCE:
      return narrowcast.ncast_all_reduce(c.send, c.recv, c.count, dtype, op, codec, comm, stream);
    case NCAST_OP_ALL_TO_ALL_V: break;  // NCCL has none
  }
  return NCAST_INTERNAL;
}

Result result_of(ncast_status status) {
  switch (status) {
    case NCAST_OK: return success;
    case NCAST_INVALID_ARGUMENT: return invalid_argument;
    case NCAST_UNSUPPORTED:
    case NCAST_MISMATCH: return invalid_usage;
    case NCAST_CUDA_ERROR: return unhandled_cuda_error;
    case NCAST_SYSTEM_ERROR: return system_error;
    case NCAST_REMOTE_ERROR:
    case NCAST_TIMEOUT: return remote_error;
    default: return internal_error;
  }
}

int report_engine_error(ncast_status status, const char* where) {
  set_last_error(std::string(where) + ": " + engine()->ncast_last_error());
  return result_of(status);
}

}  // namespace narrowcast::nccl
