// The device side of ports. A kernel posts requests, and the rank's proxy has the copy engines execute them, so no warp
// of the kernel copies data.
//
// Every function is called by a single thread. Several threads may call at the same time, also on the same port. A
// function returns false if the communicator is stopped, or if the function itself failed and reported that. The kernel
// must then end without waiting again.
#pragma once

#include "../../device/ptx/system_memory.cuh"
#include "../peer/bounded_wait.cuh"
#include "kernel_ports.h"
#include "request.h"

namespace narrowcast::channel {

class Port {
 public:
  // ports: must outlive this object; best a __grid_constant__ parameter. peer: 0 to ranks - 1. port: 0 to ports - 1.
  __device__ Port(const ncast_ports& ports, int peer, uint32_t port)
      : ports_(*reinterpret_cast<const KernelPorts*>(ports.reserved)),
        peer_(peer),
        port_(port),
        semaphore_(static_cast<uint32_t>(peer) * ports.ports + port),
        stopped_(stop_word(ports_.peers)) {}

  // Requests a copy of `bytes`, of any alignment, from a region of this rank to a region of the peer. The copy includes
  // everything that this thread wrote before, and that other threads wrote before a barrier with this thread. The
  // source must not change until a flush. Requests for one peer run in order, if they are from one thread or ordered by
  // a barrier. Waits only while the FIFO is full.
  __device__ bool put(PortPlace to, PortPlace from, uint64_t bytes) {
    return post_put(PortRequest::put, to, from, bytes) != no_ticket;
  }
  // Requests to increment the peer's semaphore of this port, after all earlier requests for this peer.
  __device__ bool signal() { return post({PortRequest::signal, peer(), port_, {}, {}, 0}) != no_ticket; }
  // Waits until all earlier requests for this peer are complete: the data has arrived and the sources may be
  // overwritten.
  __device__ bool flush() { return wait_until_complete(post({PortRequest::flush, peer(), port_, {}, {}, 0})); }

  // The same as calling the functions one after the other, in one request.
  __device__ bool put_with_signal(PortPlace to, PortPlace from, uint64_t bytes) {
    return post_put(PortRequest::put | PortRequest::signal, to, from, bytes) != no_ticket;
  }
  __device__ bool put_with_signal_and_flush(PortPlace to, PortPlace from, uint64_t bytes) {
    return wait_until_complete(post_put(PortRequest::put | PortRequest::signal | PortRequest::flush, to, from, bytes));
  }

  // Waits for the next signal of the peer to this port. The data that the peer put before it can then be read. Only one
  // thread at a time may wait or poll on the same peer and port.
  __device__ bool wait() {
    if (stopped_ != 0) return false;
    uint64_t& waited = ports_.waited[semaphore_];
    const uint64_t next = waited + 1;
    if (!wait_until(ports_.peers, peer_, [&] { return device::load_acquire(signals()) >= next; })) return false;
    waited = next;
    return true;
  }
  // As wait(), but returns false at once if the signal has not arrived.
  __device__ bool poll() {
    if (stopped_ != 0) return false;
    uint64_t& waited = ports_.waited[semaphore_];
    if (device::load_acquire(signals()) <= waited) return false;
    ++waited;
    return true;
  }

 private:
  static constexpr uint64_t no_ticket = ~uint64_t{0};  // the communicator is stopped

  __device__ uint32_t peer() const { return static_cast<uint32_t>(peer_); }
  __device__ const uint64_t* signals() const {
    return reinterpret_cast<const uint64_t*>(ports_.peers.scratch[ports_.peers.rank]) + semaphore_;
  }

  // Splits a large put and posts the last part first: if the range is out of bounds, so is its last part, and the
  // request is rejected before anything is copied.
  __device__ uint64_t post_put(uint32_t operations, PortPlace to, PortPlace from, uint64_t bytes) {
    // Saturate, so that sums do not wrap and ranges that are out of bounds remain so.
    for (uint64_t* number : {&to.offset, &from.offset, &bytes}) *number = min(*number, PortRequest::offset_limit);
    while (bytes > PortRequest::max_put_bytes) {
      bytes -= PortRequest::max_put_bytes;
      if (post({PortRequest::put,
                peer(),
                port_,
                {to.region, to.offset + bytes},
                {from.region, from.offset + bytes},
                PortRequest::max_put_bytes}) == no_ticket)
        return no_ticket;
    }
    return post({operations, peer(), port_, to, from, static_cast<uint32_t>(bytes)});
  }

  // Returns the ticket.
  __device__ uint64_t post(const PortRequest& request) {
    if (stopped_ != 0) return no_ticket;
    PortState& state = *ports_.state;
    PortFifo& fifo = *ports_.fifo;
    const uint64_t ticket = atomicAdd(&state.tickets, 1ull);
    const PortWords words = request.words(PortFifo::phase_of(ticket));
    uint64_t consumed = device::load_relaxed(&state.consumed);
    bool has_reloaded = false;
    // Store the request inside the wait loop. After the loop the warp could reconverge and wait for its other threads,
    // which in turn may wait until the proxy has consumed this request.
    const auto try_to_store = [&] {
      if (ticket - consumed >= PortFifo::slots) {
        consumed = device::load_acquire(&fifo.consumed);  // across the host link
        if (ticket - consumed >= PortFifo::slots) return false;
        has_reloaded = true;
      }
      // The fence orders the data that the kernel wrote before the request to copy it. It also orders the proxy's read
      // of the old slot before this store: the thread that loaded `consumed` from the FIFO stores it to `state` only
      // after its fence, and every thread that reads it there executes this fence before it reuses the slot.
      device::fence_system();
      if (has_reloaded) device::store_relaxed(&state.consumed, consumed);
      device::store_16_bytes_relaxed(
          &fifo.words[ticket % PortFifo::slots],
          {static_cast<uint32_t>(words.half[0]), static_cast<uint32_t>(words.half[0] >> 32),
           static_cast<uint32_t>(words.half[1]), static_cast<uint32_t>(words.half[1] >> 32)});
      return true;
    };
    return wait_until(ports_.peers, peer_, try_to_store, request_timed_out) ? ticket : no_ticket;
  }

  // Acquire: the copies have read their sources before this thread overwrites them.
  __device__ bool wait_until_complete(uint64_t ticket) {
    if (ticket == no_ticket) return false;
    const uint64_t* const completed = ports_.fifo->completed + peer_;
    return wait_until(ports_.peers, peer_, [&] { return device::load_acquire(completed) > ticket; }, request_timed_out);
  }

  const KernelPorts& ports_;
  int peer_;
  uint32_t port_;
  uint32_t semaphore_;
  uint32_t stopped_;  // the stop word when the kernel began
};

}  // namespace narrowcast::channel
