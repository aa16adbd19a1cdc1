// The functions of NCCL 2.31 that take settings of the call, for nccl.cc.
#pragma once

namespace {

// ncclCollConfig_t begins with its size.
struct CallConfig {
  size_t size;
};

bool is_bad(const CallConfig* config) { return config != nullptr && config->size < 64; }

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
