// Channels and ports: communication from your own kernels, between the ranks of a CUDA communicator. A kernel writes
// data that a kernel of a peer reads, without a call on the host in between. With channels the warps of the kernel move
// the data; with ports the GPU's copy engines do. This header is the host side, narrowcast/device.cuh the device side,
// and docs/guide/channels.md explains both.
//
// Functions that allocate or free are collective: every rank calls them, in the same order and from one thread at a
// time, and they return when all ranks have called. They wait at most for the communicator's timeout_seconds. Errors
// other than INVALID_ARGUMENT and UNSUPPORTED end the communicator (comm.h).
//
// Waits in kernels are bounded. They end when a peer dies, when the communicator is aborted, and at its timeout. The
// device function then returns false, and ncast_comm_async_error() has the reason.
//
// Stability. The library fills ncast_channels and ncast_ports, and programs pass them by value to kernels that contain
// code of device.cuh. They have no struct_bytes.
//   - Their size, and the name, type, offset and meaning of the members before `reserved`, change only when
//     narrowcast.h allows incompatible changes: with the major version, and before 1.0 also with the minor version.
//   - `reserved` is private to the library and device.cuh. Its content, and the layout of the memory that it points to,
//     may change in every version, patch releases included. Do not read it, and do not send it to another process.
// Recompile kernels that use device.cuh for every version of the library: compile them with the headers of the version
// that fills the structs at run time (ncast_version()), and use the same version on all ranks. Nothing checks this.
// Host code that only creates, copies, passes on and destroys the structs needs recompilation only after an
// incompatible change.
#ifndef NARROWCAST_CHANNEL_H_
#define NARROWCAST_CHANNEL_H_

#include "narrowcast/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NCAST_SLOT_BYTES = 4096 };  // holds a block of every value type except float64, whose blocks are twice as large
enum { NCAST_PACKET_MESSAGE_BYTES = 2048 };

// Channels between all ranks; a kernel parameter, passed by value. A channel leads from one rank to a peer, or to the
// rank itself. It consists of rings, each of which is used by one warp at each end. A ring transfers messages of at
// most `slot_bytes`, in order, and buffers 32 KiB of them. It also transfers short messages as packets, of at most
// NCAST_PACKET_MESSAGE_BYTES, and buffers four of them.
typedef struct {
  int rank;               // of the rank that created the struct
  int ranks;              // 1 to 8
  uint32_t rings;         // of every channel
  uint32_t slot_bytes;    // maximum of a message
  uint64_t reserved[16];  // private; see "Stability"
} ncast_channels;

// Creates channels. Collective, with the same arguments on every rank.
//   rings: 1 to 4096. Every rank allocates about 48 KiB for each ring and peer.
//   slot_bytes: NCAST_SLOT_BYTES or twice that.
// Errors: INVALID_ARGUMENT, UNSUPPORTED (not of GPUs of one host), MISMATCH, CUDA_ERROR, TIMEOUT, REMOTE_ERROR,
// ABORTED.
NCAST_API ncast_status ncast_channels_create(ncast_comm* comm, uint32_t rings, uint32_t slot_bytes,
                                             ncast_channels* channels);
// Frees channels. Collective. Kernels of this rank must no longer use them.
NCAST_API ncast_status ncast_channels_destroy(ncast_comm* comm, const ncast_channels* channels);

// Allocates `bytes` of zeroed memory on each rank that the kernels of all ranks can read and write, for direct puts and
// gets. The memory is on this rank's GPU, or in pinned host memory if the GPUs of some ranks cannot access each other.
// Collective, with the same bytes on every rank. Errors: as ncast_channels_create.
NCAST_API ncast_status ncast_mem_alloc(ncast_comm* comm, size_t bytes, void** own);
// The address, for kernels of this rank, of the memory of `rank` that was allocated in the same call as `own`. Not
// collective. Errors: INVALID_ARGUMENT.
NCAST_API ncast_status ncast_mem_peer(ncast_comm* comm, const void* own, int rank, void** address);
// The address, for kernels of this rank, of the memory that `rank` registered as `region` (ncast_comm_register). Valid
// until the region is deregistered. NULL if the rank registered no memory. Not collective. Errors: INVALID_ARGUMENT.
NCAST_API ncast_status ncast_region_peer(ncast_comm* comm, uint32_t region, int rank, void** address);
// Frees the memory of this rank. Collective. Kernels of this rank must no longer use the memory that any rank allocated
// in the same call, and no ports may use it. Destroying the communicator frees the remaining memory.
NCAST_API ncast_status ncast_mem_free(ncast_comm* comm, void* own);

enum { NCAST_MOST_PORTS = 255, NCAST_MOST_REGIONS = 31 };

// Ports between all ranks; a kernel parameter, passed by value. A kernel posts requests for copies, and a host thread
// of the library, the proxy, has the GPU's copy engines execute them in order. There are `ports` ports from every rank
// to every rank, including itself. Each has a semaphore on the destination rank. The copies are between regions of
// memory from ncast_mem_alloc, which are identified by their numbers.
typedef struct {
  int rank;               // of the rank that created the struct
  int ranks;              // 1 to 8
  uint32_t ports;         // to every rank
  uint32_t regions;       // their numbers are 0 to regions - 1
  uint64_t reserved[24];  // private; see "Stability"
} ncast_ports;

// Creates ports. The first ones of a communicator also start the proxy. Collective, with the same arguments on every
// rank.
//   ports: 1 to NCAST_MOST_PORTS.
//   memory: `regions` addresses from ncast_mem_alloc on this rank, in the same order on every rank. Each region must be
//           smaller than 64 GiB and must not be freed before the ports. The array is copied. May be NULL if regions is
//           0.
//   regions: 0 to NCAST_MOST_REGIONS.
// Errors: as ncast_channels_create, and SYSTEM_ERROR.
//
// The proxy checks the requests. A request beyond the bounds of its regions is not executed and ends the communicator
// with INVALID_ARGUMENT. A copy that CUDA rejects ends it with CUDA_ERROR, and copies that make no progress for the
// communicator's timeout end it with TIMEOUT.
NCAST_API ncast_status ncast_ports_create(ncast_comm* comm, uint32_t ports, void* const* memory, uint32_t regions,
                                          ncast_ports* result);
// Waits until all requests are complete and frees the ports. Collective. Kernels of this rank must no longer use them.
// Destroying the communicator does the same for the remaining ports.
NCAST_API ncast_status ncast_ports_destroy(ncast_comm* comm, const ncast_ports* ports);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_CHANNEL_H_
