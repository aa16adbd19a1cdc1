// An interposer between the drop-in and libnarrowcast.so, for tests:
// - creation times out thirty times earlier, fails if TEST_REFUSED is set, and appends its configuration to the file
//   that TEST_CONFIGS names;
// - destruction waits for the other ranks of the process, as between GPUs, and aborts the process if they do not come;
// - a cost model predicts times.
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "narrowcast/comm.h"
#include "narrowcast/explain.h"
#include "narrowcast/plan.h"

namespace {

constexpr double timeout_divisor = 30;
constexpr auto max_wait = std::chrono::seconds(5);

// The ranks of one communicator in this process.
struct Ranks {
  int joined = 0, leaving = 0;
};

std::mutex mutex;
std::condition_variable changed;
std::map<std::string, Ranks> ranks_of_id;
std::map<ncast_comm*, std::string> ids;

template <typename Type>
Type* real(Type*, const char* name) {
  static void* const library = dlopen("libnarrowcast.so.0", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Type*>(dlsym(library, name));
}
#define REAL(name) real(&name, #name)

// Wraps an exchange and records the gathered bytes, which identify the communicator.
struct Listener {
  ncast_exchange exchange;
  void* context;
  std::string id;
};
int listen(void* context, const void* mine, size_t bytes, void* all) {
  auto* const listener = static_cast<Listener*>(context);
  const int failed = listener->exchange(listener->context, mine, bytes, all);
  listener->id.assign(static_cast<const char*>(all), bytes);
  return failed;
}

}  // namespace

extern "C" {

ncast_status ncast_comm_create_by_exchange(ncast_comm** comm, int ranks, int rank, ncast_exchange exchange,
                                           void* context, const ncast_comm_config* config) {
  Listener listener = {exchange, context, ""};
  ncast_comm_config own_config = *config;
  own_config.create_timeout_seconds /= timeout_divisor;
  if (std::getenv("TEST_REFUSED") != nullptr) own_config.device = -2;
  if (const char* const path = std::getenv("TEST_CONFIGS")) {
    std::FILE* const file = std::fopen(path, "a");
    std::fprintf(file, "%zu %u %u %d %s\n", config->scratch_bytes, config->max_ctas, config->max_collective_ctas,
                 config->p2p, config->cost_model == nullptr ? "-" : config->cost_model);
    std::fclose(file);
  }
  const ncast_status status = REAL(ncast_comm_create_by_exchange)(comm, ranks, rank, listen, &listener, &own_config);
  if (status != NCAST_OK) return status;
  const std::lock_guard lock(mutex);
  ids[*comm] = listener.id;
  ++ranks_of_id[listener.id].joined;
  return status;
}

ncast_status ncast_comm_set_costs(ncast_comm* comm, const char* text) {
  if (const char* const path = std::getenv("TEST_COSTS")) {
    std::FILE* const file = std::fopen(path, "w");
    std::fputs(text, file);
    std::fclose(file);
  }
  return REAL(ncast_comm_set_costs)(comm, text);
}

ncast_status ncast_comm_destroy(ncast_comm* comm) {
  if (REAL(ncast_comm_async_error)(comm, nullptr, 0) == NCAST_OK) {
    std::unique_lock lock(mutex);
    Ranks& ranks = ranks_of_id[ids[comm]];
    ++ranks.leaving;
    changed.notify_all();
    if (!changed.wait_for(lock, max_wait, [&] { return ranks.leaving == ranks.joined; })) {
      std::fprintf(stderr, "not all communicators of the ranks in this process are destroyed\n");
      std::abort();
    }
  }
  return REAL(ncast_comm_destroy)(comm);
}

// Predicts times, which the host backend does not.
ncast_status ncast_predictor_compare_call(const ncast_predictor*, const ncast_plan_call* call, int with_windows,
                                          ncast_comparison* comparison) {
  const bool known = call->operation != NCAST_OP_BROADCAST;
  *comparison = {};
  comparison->struct_bytes = sizeof *comparison;
  comparison->faster = known;
  const char* const predicted = std::getenv("TEST_MICROSECONDS");
  comparison->microseconds = predicted == nullptr ? 2 : std::atof(predicted);
  comparison->nccl_microseconds = known ? (with_windows != 0 ? 4 : 5) : 0;
  comparison->reason = known ? nullptr : "the cost model does not know how long NCCL takes";
  return NCAST_OK;
}

const char* ncast_predictor_costs_warning(const ncast_predictor*) { return std::getenv("TEST_COSTS_WARNING"); }

}  // extern "C"
