// The functions of the fake NCCL that take a configuration per call, which NCCL has since 2.31.
#pragma once

namespace {

// ncclConfigExt_t: a vendor's extension.
struct Extension {
  const Extension* next;
  int vendor, option;
  void* value;
};

// ncclCollConfig_t of NCCL 2.32.
struct CallConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  const Extension* ext;
  int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection, CTAPolicy;
  uint64_t userProfilerTag;
  void* launchCompletionEvent;
};

// The tests pass two extensions and the tag 42, all of which must arrive unchanged.
bool is_bad(const CallConfig* config) {
  if (config == nullptr) return false;
  if (config->size != sizeof *config || config->magic != 0xcafebeef || config->version != 23203) return true;
  int extensions = 0;
  for (const Extension* one = config->ext; one != nullptr; one = one->next)
    if (one->vendor != 7 || one->option != ++extensions) return true;
  return extensions != 2 || config->userProfilerTag != 42 || config->forceAlgSelection != 1 ||
         config->CTAPolicy != INT_MIN;
}

}  // namespace

extern "C" {

int ncclAllGatherConfig(const void* send, void* recv, size_t count, int type, Comm* comm, void* stream,
                        const CallConfig* config) {
  return is_bad(config) ? invalid_argument : ncclAllGather(send, recv, count, type, comm, stream);
}
int ncclAlltoAllConfig(const void* send, void* recv, size_t count, int type, Comm* comm, void* stream,
                       const CallConfig* config) {
  return is_bad(config) ? invalid_argument : ncclAlltoAll(send, recv, count, type, comm, stream);
}
int ncclBroadcastConfig(const void* send, void* recv, size_t count, int type, int root, Comm* comm, void* stream,
                        const CallConfig* config) {
  return is_bad(config) ? invalid_argument : ncclBroadcast(send, recv, count, type, root, comm, stream);
}
int ncclGatherConfig(const void* send, void* recv, size_t count, int type, int root, Comm* comm, void* stream,
                     const CallConfig* config) {
  return is_bad(config) ? invalid_argument : ncclGather(send, recv, count, type, root, comm, stream);
}
int ncclScatterConfig(const void* send, void* recv, size_t count, int type, int root, Comm* comm, void* stream,
                      const CallConfig* config) {
  return is_bad(config) ? invalid_argument : ncclScatter(send, recv, count, type, root, comm, stream);
}
int ncclAllReduceConfig(const void* send, void* recv, size_t count, int type, int op, Comm* comm, void* stream,
                        const CallConfig* config) {
  return is_bad(config) ? invalid_argument : ncclAllReduce(send, recv, count, type, op, comm, stream);
}
int ncclReduceScatterConfig(const void* send, void* recv, size_t count, int type, int op, Comm* comm, void* stream,
                            const CallConfig* config) {
  return is_bad(config) ? invalid_argument : ncclReduceScatter(send, recv, count, type, op, comm, stream);
}
int ncclReduceConfig(const void* send, void* recv, size_t count, int type, int op, int root, Comm* comm, void* stream,
                     const CallConfig* config) {
  return is_bad(config) ? invalid_argument : ncclReduce(send, recv, count, type, op, root, comm, stream);
}

}  // extern "C"
