// A port in a kernel: what it asks for is done by the rank's proxy with the copy engines, and no warp of the kernel
// copies.
//
// A single thread calls every function; others may call at the same time, for the same port too. False means that the
// communicator is stopped, here or by a failure that the function has reported: the kernel ends without waiting again.
#pragma once

#include "../../device/ptx/system_memory.cuh"
#include "../peer/bounded_wait.cuh"
#include "kernel_ports.h"
#include "request.h"

namespace narrowcast::channel {

class Port {
 public:
  // ports: outlives this; a __grid_constant__ parameter is best. peer: 0 to ranks - 1. port: 0 to ports - 1.
  __device__ Port(const ncast_ports& ports, int peer, uint32_t port)
      : ports_(*reinterpret_cast<const KernelPorts*>(ports.reserved)),
        peer_(peer),
        port_(port),
        semaphore_(static_cast<uint32_t>(peer) * ports.ports + port),
        stopped_(stop_word(ports_.peers)) {}

  // Asks to copy `bytes`, of any alignment, from a region of this rank to one of the peer. What this thread wrote, or
  // saw written through a barrier, is copied; the source stays as it is until a flush. Requests for a peer are done in
  // order: those of one thread, and those of two threads where a barrier stands between. Waits only while the FIFO is
  // full.
  __device__ bool put(PortPlace to, PortPlace from, uint64_t bytes) {
    return post_put(PortRequest::put, to, from, bytes) != no_ticket;
  }
  // Asks to raise the peer's semaphore of this port by 1, after all that was asked for this peer before.
  __device__ bool signal() { return post({PortRequest::signal, peer(), port_, {}, {}, 0}) != no_ticket; }
  // Waits until all that was asked for this peer before is complete: it is there, and its sources may be written.
  __device__ bool flush() { return wait_until_complete(post({PortRequest::flush, peer(), port_, {}, {}, 0})); }

  // The same in one request.
  __device__ bool put_with_signal(PortPlace to, PortPlace from, uint64_t bytes) {
    return post_put(PortRequest::put | PortRequest::signal, to, from, bytes) != no_ticket;
  }
  __device__ bool put_with_signal_and_flush(PortPlace to, PortPlace from, uint64_t bytes) {
    return wait_until_complete(post_put(PortRequest::put | PortRequest::signal | PortRequest::flush, to, from, bytes));
  }

  // Waits for the next signal of the peer to this port: what it put before can then be read. One thread at a time waits
  // or polls, for one peer and port.
  __device__ bool wait() {
    if (stopped_ != 0) return false;
    uint64_t& waited = ports_.waited[semaphore_];
    const uint64_t next = waited + 1;
    if (!wait_until(ports_.peers, peer_, [&] { return device::load_acquire(arrived()) >= next; })) return false;
    waited = next;
    return true;
  }
  // As wait(), but false at once when the signal is not there.
  __device__ bool poll() {
    if (stopped_ != 0) return false;
    uint64_t& waited = ports_.waited[semaphore_];
    if (device::load_acquire(arrived()) <= waited) return false;
    ++waited;
    return true;
  }

 private:
  static constexpr uint64_t no_ticket = ~uint64_t{0};  // the communicator is stopped

  __device__ uint32_t peer() const { return static_cast<uint32_t>(peer_); }
  __device__ const uint64_t* arrived() const {
    return reinterpret_cast<const uint64_t*>(ports_.peers.scratch[ports_.peers.rank]) + semaphore_;
  }

  // The last part first: where not all of it is in bounds, that one is not, and nothing is copied.
  __device__ uint64_t post_put(uint32_t operations, PortPlace to, PortPlace from, uint64_t bytes) {
    for (uint64_t* number : {&to.offset, &from.offset, &bytes})  // no sum wraps, and what was out of bounds remains so
      *number = min(*number, PortRequest::reach_bytes);
    while (bytes > PortRequest::most_bytes) {
      bytes -= PortRequest::most_bytes;
      if (post({PortRequest::put,
                peer(),
                port_,
                {to.region, to.offset + bytes},
                {from.region, from.offset + bytes},
                PortRequest::most_bytes}) == no_ticket)
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
    const PortWords words = request.words(PortFifo::lap_of(ticket));
    uint64_t taken = device::load_relaxed(&state.taken);
    bool has_looked = false;
    // The request is stored in the loop, not behind it: there the warp might wait for its other threads, which wait for
    // what is taken of this one.
    const auto try_to_store = [&] {
      if (ticket - taken >= PortFifo::slots) {
        taken = device::load_acquire(&fifo.taken);  // across the host link
        if (ticket - taken >= PortFifo::slots) return false;
        has_looked = true;
      }
      // What the kernel wrote comes before the request to copy it. So does the proxy's reading of the slot: the thread
      // that saw it in the FIFO passes `taken` on behind its fence, and whoever meets that value has a fence behind it.
      device::fence_system();
      if (has_looked) device::store_relaxed(&state.taken, taken);
      device::store_16_bytes_relaxed(
          &fifo.words[ticket % PortFifo::slots],
          {static_cast<uint32_t>(words.half[0]), static_cast<uint32_t>(words.half[0] >> 32),
           static_cast<uint32_t>(words.half[1]), static_cast<uint32_t>(words.half[1] >> 32)});
      return true;
    };
    return wait_until(ports_.peers, peer_, try_to_store, request_timed_out) ? ticket : no_ticket;
  }

  // Acquire: the copies have read their sources before this thread writes.
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
