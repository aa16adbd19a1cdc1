// Communicators: collectives and point-to-point transfers between ranks, with a codec chosen per call.
//
// The interface is the same for every backend. NCAST_BACKEND_HOST: ranks are processes (or threads) of one machine,
// data is in host memory, payloads cross POSIX shared memory. NCAST_BACKEND_CUDA: ranks are GPUs of one machine, with
// 227 KiB of shared memory a CTA (Hopper's, and Blackwell's of that size); data is in their memory, streams are CUDA's.
// Calls that move data give every bit as it was; reductions accumulate in fp32 (fp64 for float64, the type itself,
// wrapping, for integers) in rank order and round once, so that all ranks and all runs get the same bits whatever the
// codec. MIN and MAX ignore NaN unless all values are NaN; AVG divides the sum by the ranks before it rounds, and
// truncates integers toward zero; too large for float8_e4m3 becomes NaN.
//
// A bad argument is an error of that call alone. Any other error ends the communicator on every rank: waiting calls
// return, later calls return the same error, and it can only be destroyed.
//
// A forked child has no part in its parent's communicators and streams: it may destroy its copies, which the ranks do
// not notice, and anything else is refused.
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
  int device;              // CUDA: the device of this rank; -1: the current device. Not looked at by the host backend
  size_t scratch_bytes;    // staging a rank may hold, all peers together; the same on every rank; 0: the backend's
                           // default (host: 4 MiB; CUDA: 176 MiB). Of these a rank takes what its peers need
  double timeout_seconds;  // how long a call waits for a peer that is alive; 0: for ever
  double create_timeout_seconds;  // how long the creation does, which no abort can end; 0: as timeout_seconds
  // CUDA only. What is open the environment says (docs/guide/settings.md).
  //   max_ctas: the most CTAs, of an SM each, that a call takes, 1 to 64; the least of all ranks counts. 0: open.
  //   p2p: 0: through host memory, even where GPUs reach each other; one rank's wish is enough. 1: no such wish. -1:
  //     open.
  //   cost_model: the path of a file of times by which calls are run, read when the communicator is made; rank 0's
  //     counts. "": those built in. NULL: open.
  uint32_t max_ctas;
  int p2p;
  const char* cost_model;
} ncast_comm_config;

// Totals of one rank. This struct does not grow.
typedef struct {
  uint64_t calls;       // calls made; one that a CUDA graph captured counts once
  uint64_t raw_bytes;   // values that this rank sent to others
  uint64_t wire_bytes;  // the same values on the link: frames with their headers, or bare values with codec raw
} ncast_operation_counters;

// Totals of one rank since the communicator was created. Set struct_bytes to sizeof(ncast_comm_counters) before the
// call. Later versions append members.
typedef struct {
  size_t struct_bytes;
  uint64_t calls, raw_bytes, wire_bytes;  // of all operations, as in ncast_operation_counters
  uint64_t scratch_bytes;                 // staging memory that the rank holds; at most scratch_bytes of its settings
} ncast_comm_counters;

// Sets the default of every setting. struct_bytes: sizeof(ncast_comm_config) in the program, which may be older than
// the library.
NCAST_API void ncast_comm_config_defaults(ncast_comm_config* config, size_t struct_bytes);
static inline void ncast_comm_config_init(ncast_comm_config* config) {
  ncast_comm_config_defaults(config, sizeof *config);
}

// Creates an id on one rank; the user sends it to the others. It is for one communicator, and whoever knows it can join.
NCAST_API ncast_status ncast_get_unique_id(ncast_unique_id* id);

// Removes shared memory of this library in /dev/shm that no living process owns: killed processes leave it behind. The
// creation of a communicator does so too. Segments of other users and of other pid namespaces stay. removed: how many
// segments were removed; may be NULL.
NCAST_API ncast_status ncast_remove_stale_segments(int* removed);

// Joins the communicator of `id` as `rank` of `ranks`: 64 at most on the host backend, 8 on CUDA. Returns when every
// rank has joined. config may be NULL. Errors: TIMEOUT names the ranks that are missing, REMOTE_ERROR one that died,
// MISMATCH; UNSUPPORTED when this build does not have the backend; SYSTEM_ERROR, for one when /dev/shm is full.
NCAST_API ncast_status ncast_comm_create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                                         const ncast_comm_config* config);

// As ncast_comm_create, for ranks that can exchange bytes already: over a communicator of NCCL or MPI, or a store. No
// id is carried by hand. `exchange(context, mine, bytes, all)` is called once on every rank and gathers: rank r's
// `bytes` bytes (512 at most, the same on every rank) come to all + r * bytes, in host memory; it returns 0, or
// anything else for a failure. It is called too where rank or config are refused, so that the others need not wait for
// such a rank; not where comm or exchange is NULL, or ranks below 1. Errors besides those of ncast_comm_create:
// REMOTE_ERROR when the exchange failed, or another rank was refused.
typedef int (*ncast_exchange)(void* context, const void* mine, size_t bytes, void* all);
NCAST_API ncast_status ncast_comm_create_by_exchange(ncast_comm** comm, int ranks, int rank, ncast_exchange exchange,
                                                     void* context, const ncast_comm_config* config);

// All ranks of one process at once, for a thread that drives them all: comms[r] becomes rank r's, as ncast_comm_create
// makes it. devices: of each rank; NULL: rank r has device r. config may be NULL; its device is not looked at. When a
// rank fails, all of comms are NULL. Calls of such a thread that wait for other ranks need its calls of these: on the
// host backend they are in one group, or on streams.
NCAST_API ncast_status ncast_comm_create_all(ncast_comm** comms, int ranks, const int* devices,
                                             const ncast_comm_config* config);
// Destroys them, as ncast_comm_destroy does each, and sets them to NULL. The error is that of the first rank that had
// one.
NCAST_API ncast_status ncast_comm_destroy_all(ncast_comm** comms, int ranks);

// Waits for this rank's streams and for the functions that other threads have called with comm, leaves the communicator
// and frees it. NULL is allowed. Until it returns an abort from another thread ends what it waits for; other calls are
// INVALID_ARGUMENT, as is any with a comm that was destroyed, until a new communicator has its address. CUDA: waits for
// the other ranks to do the same, too, unless the communicator has ended: their kernels reach this rank's memory. A
// thread that drives several ranks calls ncast_comm_destroy_all.
NCAST_API ncast_status ncast_comm_destroy(ncast_comm* comm);

// Ends every call in flight on every rank, from any thread: waiting calls return NCAST_ABORTED. The communicator can
// then only be destroyed.
NCAST_API ncast_status ncast_comm_abort(ncast_comm* comm);

// The first error that a call of this communicator met, here or on another rank, or NCAST_OK. message (may be NULL)
// receives its sentence, cut to message_capacity bytes with the closing 0.
NCAST_API ncast_status ncast_comm_async_error(ncast_comm* comm, char* message, size_t message_capacity);

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
// The same by operation: counters[i] receives the totals of the ncast_operation i, for i from 0 to capacity - 1.
// Entries of operations that the library does not know become 0.
NCAST_API ncast_status ncast_comm_get_operation_counters(const ncast_comm* comm, ncast_operation_counters* counters,
                                                         int capacity);

// CUDA: registers memory, so that values which travel as they are (codec RAW, or AUTO where it chooses that) are
// written by their sender where they end up, in place of coming through the communicator's scratch. That is done for 4
// MiB and more from one rank to another, of calls that move and do not reduce. What is received may lie anywhere in the
// memory, and on other ranks elsewhere or in none.
//   memory: `bytes` of one allocation of cudaMalloc on this communicator's GPU, which stays allocated until it is
//           deregistered. NULL, with 0 bytes: this rank registers none.
//   region: which one it is, the same on all ranks.
// Collective: every rank calls it at the same place in the order of the communicator's calls, of which any may be in
// flight, and it returns when all have. Calls that a graph captured before go on as they were, so that what one rank
// replays of them the others replay, too. Errors, on all ranks the same: INVALID_ARGUMENT, UNSUPPORTED (memory of
// another kind, such as cuMemMap's; GPUs that cannot reach each other; the host backend; more than
// NCAST_MOST_REGISTERED), after which the communicator goes on; those of waiting end it.
enum { NCAST_MOST_REGISTERED = 63 };
NCAST_API ncast_status ncast_comm_register(ncast_comm* comm, void* memory, size_t bytes, uint32_t* region);
// Collective, with the same region on every rank. Waits for this rank's calls. No graph with a call that uses the
// memory is under way on this rank or launched again. Destroying the communicator deregisters what is left. Errors:
// INVALID_ARGUMENT; that of a communicator that has failed, whose peers may be writing to the memory until they have
// destroyed theirs.
NCAST_API ncast_status ncast_comm_deregister(ncast_comm* comm, uint32_t region);

// Streams of the host backend: calls on one stream run in order on its thread and the caller goes on. A NULL stream
// runs the call before it returns. Buffers stay untouched by the caller until the stream is synchronized.
NCAST_API ncast_status ncast_stream_create(ncast_stream* stream);
// Waits for its calls first. NULL is allowed.
NCAST_API ncast_status ncast_stream_destroy(ncast_stream stream);
// Waits for all calls on the stream and returns the first error among those since the last synchronize.
NCAST_API ncast_status ncast_stream_synchronize(ncast_stream stream);

// Sends and receives between start and end run together, without deadlock whatever their order; collectives may be
// grouped too and run in the order of their calls, before the sends and receives. Different communicators run side by
// side. Groups nest; the outermost end launches, or runs nothing and returns the error when a call of the group was
// refused. Per thread. A send to oneself needs its receive in the same group.
NCAST_API ncast_status ncast_group_start(void);
NCAST_API ncast_status ncast_group_end(void);

// Counts are values, not bytes. Buffers need the alignment of the value type. Every rank calls with the same count,
// dtype, op, root and codec; a difference is NCAST_MISMATCH on the ranks that see it. Zero counts are allowed.
//
// CUDA: a call is asynchronous on its stream, NULL being the legacy default stream, and may be captured in a CUDA
// graph. Calls of a communicator wait for each other whatever their streams; launches of captured graphs are for the
// caller to order among each other and with other calls. Ranks that call with differences are not told apart from peers
// that do not come: the results are unspecified, and the communicator ends with NCAST_TIMEOUT or NCAST_CORRUPT.
NCAST_API ncast_status ncast_send(const void* values, uint64_t count, ncast_dtype dtype, int peer, ncast_codec codec,
                                  ncast_comm* comm, ncast_stream stream);
NCAST_API ncast_status ncast_recv(void* values, uint64_t count, ncast_dtype dtype, int peer, ncast_codec codec,
                                  ncast_comm* comm, ncast_stream stream);
// recv may equal send (in place).
NCAST_API ncast_status ncast_broadcast(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root,
                                       ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// The root's recv gets the reduction and may equal its send (in place). The recv of other ranks is not looked at.
NCAST_API ncast_status ncast_reduce(const void* send, void* recv, uint64_t count, ncast_dtype dtype, ncast_redop op,
                                    int root, ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// The root's recv holds ranks * count values; in place when its send == recv + root * count values. The recv of other
// ranks is not looked at.
NCAST_API ncast_status ncast_gather(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root,
                                    ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// The root's send holds ranks * count values, chunk r for rank r; in place when its recv == send + root * count values.
// The send of other ranks is not looked at.
NCAST_API ncast_status ncast_scatter(const void* send, void* recv, uint64_t count, ncast_dtype dtype, int root,
                                     ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// recv holds ranks * count values; in place when send == recv + rank * count values.
NCAST_API ncast_status ncast_all_gather(const void* send, void* recv, uint64_t count, ncast_dtype dtype,
                                        ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// send and recv hold ranks * count values; chunk r of send goes to rank r. Not in place.
NCAST_API ncast_status ncast_all_to_all(const void* send, void* recv, uint64_t count, ncast_dtype dtype,
                                        ncast_codec codec, ncast_comm* comm, ncast_stream stream);
// As all_to_all, with counts and offsets of its own for each rank, in values: send_counts[r] values at send +
// send_offsets[r] go to rank r, recv_counts[r] values come from it to recv + recv_offsets[r]. The arrays are `ranks`
// long and copied. A count may be zero, and its offset is then not looked at; one that differs from the other rank's is
// NCAST_MISMATCH. Ranges in recv overlap neither each other nor what is sent.
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
