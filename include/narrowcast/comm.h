// Communicators: collectives and point-to-point transfers between ranks, with a codec for each call.
//
// The interface is the same for both backends. With NCAST_BACKEND_HOST, ranks are processes or threads, data is in
// host memory, and payloads travel through POSIX shared memory. With NCAST_BACKEND_CUDA, ranks are GPUs of compute
// capability 8.0 or newer, data is in GPU memory, and streams are CUDA streams. Between hosts payloads travel by TCP.
//
// Calls that move data deliver identical bits. Reductions accumulate in fp32 (fp64 for float64; integers in their own
// type, which wraps around) in rank order and round once: all ranks and all runs get the same bits, with every codec.
// In two levels (docs/guide/communicator.md) they combine the ranks of each host, then the hosts.
// MIN and MAX ignore NaN unless all values are NaN; -0 is smaller than +0. AVG divides the sum by the number of ranks
// before it rounds; integers are truncated toward zero. Results too large for float8_e4m3 become NaN.
//
// An invalid argument fails only that call. Any other error ends the communicator on every rank: waiting calls return,
// later calls return the same error, and the communicator can only be destroyed.
//
// A forked child cannot use its parent's communicators and streams. It may destroy its copies, which does not affect
// the ranks; other calls fail.
#ifndef NARROWCAST_COMM_H_
#define NARROWCAST_COMM_H_

#include "narrowcast/operation.h"
#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncast_comm ncast_comm;

enum { NCAST_UNIQUE_ID_BYTES = 128 };
typedef struct {
  char bytes[NCAST_UNIQUE_ID_BYTES];
} ncast_unique_id;

typedef enum { NCAST_BACKEND_HOST = 1, NCAST_BACKEND_CUDA = 2 } ncast_backend;

// Settings of a communicator. Fill with ncast_comm_config_init, then change what you need. Later versions add members
// at the end. The library accepts the shorter struct of an older version; members that it lacks have their defaults. A
// longer one of a newer version is UNSUPPORTED if it sets a member that the library does not have.
typedef struct {
  size_t struct_bytes;     // set by ncast_comm_config_init
  ncast_backend backend;   // NCAST_BACKEND_HOST
  int device;              // CUDA: the GPU of this rank; -1: the current one. The host backend ignores it
  size_t scratch_bytes;    // maximum staging memory of a rank, for all peers together; the same on every rank. 0: the
                           // default (host: 4 MiB; CUDA: 176 MiB). The rank may allocate less
  double timeout_seconds;  // how long a call waits for a peer that is alive; 0: no limit
  double create_timeout_seconds;  // the same for the creation, which ncast_comm_abort cannot end; 0: timeout_seconds
  // If a setting is unset, the environment decides (docs/guide/settings.md). The first two are for CUDA only.
  //   max_ctas: maximum number of CTAs of a call, 1 to 64, each of which uses one SM. The ranks use the smallest value.
  //     0: unset.
  //   p2p: 0: all ranks communicate through host memory, even if the GPUs can access each other, if at least one rank
  //     sets this. 1: direct access. -1: unset.
  //   cost_model: path of a file with measured times, which decide how calls run. It is read when the communicator is
  //     created. CUDA: the ranks use that of rank 0. Host backend: every rank reads it, with the same content. "": the
  //     built-in model. NULL: unset.
  uint32_t max_ctas;
  int p2p;
  const char* cost_model;
  // CUDA: the same as max_ctas for long collectives, which training runs beside compute: all_reduce calls of 4 MiB or
  // more, and all_gather and reduce_scatter calls of 4 MiB or more for each rank. Results do not depend on it. 0: no
  // other limit than max_ctas.
  uint32_t max_collective_ctas;
} ncast_comm_config;

// Totals of one rank. This struct does not grow.
typedef struct {
  uint64_t calls;       // calls made; one that a CUDA graph captured counts once
  uint64_t raw_bytes;   // size of the values that this rank sent to others
  uint64_t wire_bytes;  // size of the same values on the link: frames with their headers, or bare values with codec raw
} ncast_operation_counters;

// Totals of one rank since the communicator was created. Set struct_bytes to sizeof(ncast_comm_counters) before the
// call. Later versions append members.
typedef struct {
  size_t struct_bytes;
  uint64_t calls, raw_bytes, wire_bytes;  // of all operations, as in ncast_operation_counters
  uint64_t scratch_bytes;                 // staging memory that the rank has allocated
  uint64_t network_bytes;                 // of wire_bytes, those that went to ranks of other hosts
} ncast_comm_counters;

// Sets the default of every setting. struct_bytes: sizeof(ncast_comm_config) in the program, which may be older than
// the library.
NCAST_API void ncast_comm_config_defaults(ncast_comm_config* config, size_t struct_bytes);
static inline void ncast_comm_config_init(ncast_comm_config* config) {
  ncast_comm_config_defaults(config, sizeof *config);
}

// Creates an id on one rank; the user sends it to the others. An id is for one communicator, even if that fails:
// ranks that use it later get the failure. Any process that knows it can join. Ranks of GPUs, and those of the host
// backend if the environment says that they may be on several hosts, connect to the process that created the id, at one
// port for all ids. Otherwise ranks of the host backend must be on this host (docs/guide/communicator.md).
NCAST_API ncast_status ncast_get_unique_id(ncast_unique_id* id);

// The same if all ranks are on this host and in its network namespace: that port is then on loopback, which no other
// host can reach, unless NARROWCAST_SOCKET_IFNAME names an interface.
NCAST_API ncast_status ncast_get_local_unique_id(ncast_unique_id* id);

// Removes shared memory of this library in /dev/shm that no living process owns: killed processes leave it behind. The
// creation of a communicator does so too. Segments of other users and of other pid namespaces stay. removed: how many
// segments were removed; may be NULL.
NCAST_API ncast_status ncast_remove_stale_segments(int* removed);

// Joins the communicator of `id` as `rank` of `ranks`, at most 64; on CUDA at most 1,024. More than 8 GPUs, and those
// of hosts that have several each, form two levels (docs/guide/communicator.md). Returns when every rank has joined.
// config may be NULL. Errors: TIMEOUT on all ranks names those missing; REMOTE_ERROR one that died; MISMATCH: what
// differs, on which ranks; INVALID_ARGUMENT, also if this process has created a communicator with the id; UNSUPPORTED
// if this build lacks the backend, or so many GPUs cannot form two levels; SYSTEM_ERROR, for example if /dev/shm is
// full.
NCAST_API ncast_status ncast_comm_create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                                         const ncast_comm_config* config);

// As ncast_comm_create, for ranks that can already exchange bytes: through a communicator of NCCL or MPI, or a store.
// The caller does not send an id. `exchange(context, mine, bytes, all)` is called once on every rank and gathers: the
// `bytes` bytes of rank r (at most 512, the same on every rank) arrive at all + r * bytes, in host memory. It returns
// 0, or another value on failure. It is also called if rank or config are invalid, so that the other ranks do not wait;
// it is not called if comm or exchange is NULL or ranks is below 1. Further errors: REMOTE_ERROR if the exchange failed
// or another rank's arguments were invalid.
typedef int (*ncast_exchange)(void* context, const void* mine, size_t bytes, void* all);
NCAST_API ncast_status ncast_comm_create_by_exchange(ncast_comm** comm, int ranks, int rank, ncast_exchange exchange,
                                                     void* context, const ncast_comm_config* config);

// Creates all ranks in one process, for a thread that drives them all: comms[r] becomes that of rank r. devices: the
// GPU of each rank; NULL: GPU r for rank r. config may be NULL; its device is ignored. If a rank fails, all of comms
// are NULL. On the host backend such a thread makes the calls of its ranks in one group, or on streams, because they
// wait for each other. A call of this thread that waits for a rank whose call it has not made is refused with
// INVALID_ARGUMENT.
NCAST_API ncast_status ncast_comm_create_all(ncast_comm** comms, int ranks, const int* devices,
                                             const ncast_comm_config* config);
// Destroys all of them and sets them to NULL. Returns the error of the first rank that has one.
NCAST_API ncast_status ncast_comm_destroy_all(ncast_comm** comms, int ranks);

// Divides the ranks into new communicators: those with the same `color` form one, ordered by `key` and then by their
// rank in comm. A rank with color NCAST_SPLIT_NOCOLOR joins none: *result becomes NULL. Collective: every rank calls it
// at the same position in the sequence of comm's calls, outside of groups and of graph captures. It blocks until the
// new communicator exists, so a thread that drives several ranks cannot call it (INVALID_ARGUMENT after
// ncast_comm_create_all). config: NULL: the settings of comm, including its device; the same config.backend on all
// ranks. comm remains usable, and both are destroyed independently. Errors: those of the creation; REMOTE_ERROR also if
// the arguments of another rank were invalid.
enum { NCAST_SPLIT_NOCOLOR = -1 };
NCAST_API ncast_status ncast_comm_split(ncast_comm* comm, int color, int key, const ncast_comm_config* config,
                                        ncast_comm** result);

// Waits for this rank's streams and for functions that other threads have called with comm, leaves the communicator and
// frees it. NULL is allowed. An abort from another thread ends these waits; other calls with comm return
// INVALID_ARGUMENT from now on, until a new communicator has the same address. CUDA: also waits until the other ranks
// destroy theirs, unless the communicator has failed, because their kernels access the memory of this rank. A thread
// that drives several ranks calls ncast_comm_destroy_all.
NCAST_API ncast_status ncast_comm_destroy(ncast_comm* comm);

// Ends every call in flight on every rank, from any thread: waiting calls return NCAST_ABORTED. The communicator can
// then only be destroyed. CUDA: calls in flight on other ranks that need nothing more from this rank complete.
NCAST_API ncast_status ncast_comm_abort(ncast_comm* comm);

// The first error of this communicator, on this rank or another one, or NCAST_OK. message (may be NULL) receives its
// text, truncated to message_capacity bytes including the final 0.
NCAST_API ncast_status ncast_comm_async_error(ncast_comm* comm, char* message, size_t message_capacity);
// As ncast_comm_async_error, but only an abort by this rank and errors that ended one of its calls: the failure of
// another rank is no error if this rank's calls are complete.
NCAST_API ncast_status ncast_comm_call_error(ncast_comm* comm, char* message, size_t message_capacity);

// The rank that was passed when the communicator was created.
NCAST_API ncast_status ncast_comm_rank(const ncast_comm* comm, int* rank);
// The number of ranks.
NCAST_API ncast_status ncast_comm_ranks(const ncast_comm* comm, int* ranks);
// Reads the totals of this rank. Any thread.
//
// CUDA: kernels count the blocks that they send, so replays of graphs are included. They count values when they begin
// and wire bytes as they go. Short messages that travel as packets (ncast_comm_explain) count when the call is made,
// and not in graphs.
NCAST_API ncast_status ncast_comm_get_counters(const ncast_comm* comm, ncast_comm_counters* counters);
// As above, by operation: counters[i] receives the totals of ncast_operation i, for i from 0 to capacity - 1. Entries
// of operations that the library does not know become 0.
NCAST_API ncast_status ncast_comm_get_operation_counters(const ncast_comm* comm, ncast_operation_counters* counters,
                                                         int capacity);

// CUDA: registers memory, so that a sender writes uncompressed values directly to their destination instead of the
// communicator's scratch memory. This applies to transfers of at least 4 MiB between two ranks, in calls that move data
// and do not reduce. Values may be received anywhere in the memory; other ranks may receive at other offsets, or in
// memory that is not registered.
//   memory: `bytes` bytes of one cudaMalloc allocation on this communicator's GPU, which must stay allocated until they
//           are deregistered. NULL with 0 bytes: this rank registers no memory.
//   region: receives the number of the region, the same on all ranks.
// Collective: every rank calls it at the same position in the sequence of the communicator's calls. Earlier calls may
// still be running. Returns when all ranks have called it. Graphs captured before are unaffected, so ranks that replay
// them still match. Errors are the same on all ranks. After INVALID_ARGUMENT and UNSUPPORTED (other kinds of memory,
// such as cuMemMap's; GPUs that cannot access each other; the host backend; more than NCAST_MOST_REGISTERED regions)
// the communicator remains usable; timeouts and failures of peers end it.
enum { NCAST_MOST_REGISTERED = 63 };
NCAST_API ncast_status ncast_comm_register(ncast_comm* comm, void* memory, size_t bytes, uint32_t* region);
// Collective, with the same region on every rank. Waits for this rank's calls. No graph with a call that uses the
// memory may be running on this rank or be launched again. Destroying the communicator deregisters the remaining
// regions. Errors: INVALID_ARGUMENT; the error of a communicator that has failed, whose peers may write to the memory
// until they have destroyed theirs.
NCAST_API ncast_status ncast_comm_deregister(ncast_comm* comm, uint32_t region);

// Streams of the host backend. Calls on a stream run in order on its thread, and the functions return at once. With a
// NULL stream a function returns when the call has run. The caller must not access the buffers until the stream is
// synchronized.
NCAST_API ncast_status ncast_stream_create(ncast_stream* stream);
// Waits for the calls on the stream. NULL is allowed.
NCAST_API ncast_status ncast_stream_destroy(ncast_stream stream);
// Waits for all calls on the stream. Returns the first error of the calls since the previous synchronization.
NCAST_API ncast_status ncast_stream_synchronize(ncast_stream stream);

// Sends and receives between start and end run together and cannot deadlock, whatever their order. There is one
// exception: if a group has several messages with the same rank in one direction, and more pairs of rank and direction
// than the GPU has hardware queues (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default), the other ranks must make their i-th
// send to and receive from this rank before the next ones, as NCCL requires. Collectives in a group run in the order of
// their calls, before its sends and receives. Different communicators run concurrently.
// Groups belong to a thread and nest. The outermost end launches the calls; if one of them was rejected, it launches
// none and returns that error. A send to the rank itself needs its receive in the same group.
NCAST_API ncast_status ncast_group_start(void);
NCAST_API ncast_status ncast_group_end(void);
// As ncast_group_end, for a group that lacks calls, for example because an argument is wrong. Its calls with
// communicators of ncast_comm_create_all, which no other thread waits for, are not launched. The others are, because
// other ranks may wait for them.
NCAST_API ncast_status ncast_group_abandon(void);

// Counts are numbers of values. Buffers need the alignment of the value type. Zero counts are allowed.
//
// All ranks call the same collectives in the same order with the same count, dtype, op, root and codec, and a receive
// has the count, dtype and codec of its send. A difference is NCAST_MISMATCH on every rank, including ranks that only
// send: collectives end after all ranks have begun the same call. Only a send may end before its receive is known; its
// error is that of the sender's next call and of ncast_comm_async_error.
//
// CUDA: a call is asynchronous on its stream (NULL: the legacy default stream) and may be captured in a CUDA graph. The
// calls of a communicator run in order, on whichever streams they are. The caller orders launches of captured graphs
// among each other and with other calls. In two levels the first message between two ranks may wait until both have
// made it (docs/guide/communicator.md). If ranks make different calls, the received values are unspecified, and the
// error is asynchronous: NCAST_MISMATCH. The GPUs compare 12-bit hashes, so calls that differ in more than one argument
// pass as equal in 1 of 4096 cases. The error is NCAST_TIMEOUT, or NCAST_MISMATCH in a later call, if a rank makes no
// corresponding call: if it makes fewer calls, a call with a count of 0, or sends and receives while the others run a
// collective.
NCAST_API ncast_status ncast_send(const void* values, uint64_t count, ncast_dtype dtype, int peer, ncast_codec codec,
                                  ncast_comm* comm, ncast_stream stream);
NCAST_API ncast_status ncast_recv(void* values, uint64_t count, ncast_dtype dtype, int peer, ncast_codec codec,
                                  ncast_comm* comm, ncast_stream stream);
// recv may equal send (in place).
NCAST_API ncast_status ncast_broadcast(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root,
                                       ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// The root's recv receives the reduction and may equal its send (in place). The recv of other ranks is ignored.
NCAST_API ncast_status ncast_reduce(const void* send, void* recv, uint64_t count, ncast_dtype dtype, ncast_redop op,
                                    int root, ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// The root's recv holds ranks * count values; in place when its send == recv + root * count values. The recv of other
// ranks is ignored.
NCAST_API ncast_status ncast_gather(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root,
                                    ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// The root's send holds ranks * count values, piece r for rank r; in place when its recv == send + root * count values.
// The send of other ranks is ignored.
NCAST_API ncast_status ncast_scatter(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root,
                                     ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// recv holds ranks * count values; in place when send == recv + rank * count values.
NCAST_API ncast_status ncast_all_gather(const void* send, void* recv, uint64_t count, ncast_dtype dtype,
                                        ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// send and recv hold ranks * count values; piece r of send goes to rank r. Not in place.
NCAST_API ncast_status ncast_all_to_all(const void* send, void* recv, uint64_t count, ncast_dtype dtype,
                                        ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// As all_to_all, with a count and an offset for each rank, in values: send_counts[r] values at send + send_offsets[r]
// go to rank r, and recv_counts[r] values from rank r arrive at recv + recv_offsets[r]. The arrays have `ranks` entries
// and are copied. The offset of a zero count is ignored. A count that differs from that of the other rank is
// NCAST_MISMATCH. Ranges in recv must not overlap each other or the values to send.
NCAST_API ncast_status ncast_all_to_all_v(const void* send, const uint64_t* send_counts, const uint64_t* send_offsets,
                                          void* recv, const uint64_t* recv_counts, const uint64_t* recv_offsets,
                                          ncast_dtype dtype, ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// send holds ranks * count values, recv count; in place when recv == send + rank * count values.
NCAST_API ncast_status ncast_reduce_scatter(const void* send, void* recv, uint64_t count, ncast_dtype dtype,
                                            ncast_redop op, ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// recv may equal send (in place).
NCAST_API ncast_status ncast_all_reduce(const void* send, void* recv, uint64_t count, ncast_dtype dtype, ncast_redop op,
                                        ncast_codec codec, ncast_comm* comm, ncast_stream stream);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_COMM_H_
