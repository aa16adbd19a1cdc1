// Channels and ports for kernels of your own, on the ranks of a CUDA communicator: a kernel puts data where a peer's
// kernel gets it, with no call of the host in between. Over channels its warps move the data; through ports copy
// engines do. This is the host's side; narrowcast/device.cuh is the kernels', and docs/guide/channels.md walks through
// both.
//
// What allocates and frees is collective: every rank calls it, in the same order and from one thread at a time, and it
// returns when all have. It waits as long as the communicator's timeout says. An error other than INVALID_ARGUMENT and
// UNSUPPORTED ends the communicator, as comm.h says.
//
// Waits of kernels are bounded: they end when a peer dies, the communicator is aborted, or its timeout is over. The
// kernel then sees its call return false, and ncast_comm_async_error says why.
#ifndef NARROWCAST_CHANNEL_H_
#define NARROWCAST_CHANNEL_H_

#include "narrowcast/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NCAST_SLOT_BYTES = 4096 };  // a block of values of every type but float64, whose blocks take twice that
enum { NCAST_PACKET_MESSAGE_BYTES = 2048 };

// Channels between all ranks, by value in a kernel's parameters. A channel leads from one rank to another, which may be
// itself, and has `rings`, each of which is used by one warp at either end. A ring carries messages of `slot_bytes` at
// most, in order, and holds 32 KiB of them; beside them it carries messages of packets, of NCAST_PACKET_MESSAGE_BYTES
// at most, and holds four.
typedef struct {
  int rank;             // this one
  int ranks;            // 1 to 8
  uint32_t rings;       // of every channel
  uint32_t slot_bytes;  // of a message, at most
  uint64_t reserved[16];
} ncast_channels;

// Makes channels. Collective, with the same arguments on every rank.
//   rings: 1 to 4096. Each takes some 48 KiB on every rank for every rank.
//   slot_bytes: NCAST_SLOT_BYTES or twice that.
// Errors: INVALID_ARGUMENT, UNSUPPORTED (the communicator is not of GPUs), MISMATCH, CUDA_ERROR, those of waiting.
NCAST_API ncast_status ncast_channels_create(ncast_comm* comm, uint32_t rings, uint32_t slot_bytes,
                                             ncast_channels* channels);
// Frees them. Collective. No kernel of this rank uses them any more.
NCAST_API ncast_status ncast_channels_destroy(ncast_comm* comm, const ncast_channels* channels);

// Allocates `bytes`, zero at first, which the kernels of all ranks can read and write: the target of direct puts, the
// source of direct gets. It is on this rank's GPU or, where the GPUs of two ranks cannot reach each other, pinned in
// host memory. Collective, with the same bytes on every rank. Errors: as above.
NCAST_API ncast_status ncast_mem_alloc(ncast_comm* comm, size_t bytes, void** own);
// Where kernels of this rank find the memory of `rank` that was allocated together with `own`. Not collective.
NCAST_API ncast_status ncast_mem_peer(ncast_comm* comm, const void* own, int rank, void** address);
// Where kernels of this rank find what `rank` registered as `region` (ncast_comm_register), until that is deregistered;
// NULL: it registered none. Not collective. Errors: INVALID_ARGUMENT.
NCAST_API ncast_status ncast_region_peer(ncast_comm* comm, uint32_t region, int rank, void** address);
// Frees this rank's part. Collective. No kernel of this rank uses the memory of any rank any more, and no ports reach
// it. Destroying the communicator frees what is left.
NCAST_API ncast_status ncast_mem_free(ncast_comm* comm, void* own);

enum { NCAST_MOST_PORTS = 255, NCAST_MOST_REGIONS = 31 };

// Ports between all ranks, by value in a kernel's parameters. A kernel asks for copies, and a thread of the library on
// the host, the proxy, has them done by the GPU's copy engines, in order. There are `ports` from every rank to every
// rank, itself too, each with a semaphore at its end. They reach `regions` of memory that ncast_mem_alloc gave, and
// know them by their number.
typedef struct {
  int rank;          // this one
  int ranks;         // 1 to 8
  uint32_t ports;    // to every rank
  uint32_t regions;  // 0 to regions - 1
  uint64_t reserved[24];
} ncast_ports;

// Makes ports, and starts the proxy with the first of a communicator. Collective, with the same arguments on every
// rank.
//   ports: 1 to NCAST_MOST_PORTS.
//   memory: `regions` addresses that ncast_mem_alloc gave on this rank, in the same order on every rank. Each is less
//           than 64 GiB, and is not freed before the ports. The array is copied. May be NULL when regions is 0.
//   regions: 0 to NCAST_MOST_REGIONS.
// Errors: INVALID_ARGUMENT, UNSUPPORTED (the communicator is not of GPUs), MISMATCH, CUDA_ERROR, SYSTEM_ERROR, those of
// waiting.
//
// What a kernel asks for is checked on the host. A request that leaves its regions is not done, and ends the
// communicator with INVALID_ARGUMENT. So do copies that CUDA refuses, with CUDA_ERROR, and copies that get nowhere,
// with TIMEOUT.
NCAST_API ncast_status ncast_ports_create(ncast_comm* comm, uint32_t ports, void* const* memory, uint32_t regions,
                                          ncast_ports* result);
// Waits until all that was asked for is complete, and frees them. Collective. No kernel of this rank uses them any
// more. Destroying the communicator frees what is left, in the same way.
NCAST_API ncast_status ncast_ports_destroy(ncast_comm* comm, const ncast_ports* ports);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_CHANNEL_H_
