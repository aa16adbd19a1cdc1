// Ports without a GPU: threads post requests as kernels do, and a fake transport copies when the test allows it.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "channel/port/service.h"
#include "status/error.h"
#include "support/ranks.h"

namespace narrowcast::testing {

using namespace bootstrap;
using namespace channel;

inline constexpr uint32_t ranks = 3, ports = 4, region_bytes = 4096;
inline constexpr uint32_t put = PortRequest::put, signal = PortRequest::signal, flush = PortRequest::flush;

// The kernel's side of the FIFO, for host threads.
class Poster {
 public:
  explicit Poster(PortFifo& fifo) : fifo_(fifo) {}

  bool has_room(uint64_t ticket) const { return ticket - load(fifo_.consumed) < PortFifo::slots; }
  uint64_t take_ticket() { return tickets_++; }
  uint64_t post(const PortRequest& request) {
    const uint64_t ticket = take_ticket();
    while (!has_room(ticket)) sched_yield();
    fill(ticket, request);
    return ticket;
  }
  // Stores the halves in alternating order, because either half of a 16-byte store may become visible first.
  void fill(uint64_t ticket, const PortRequest& request) {
    for (const int half : {static_cast<int>(ticket % 2), static_cast<int>(1 - ticket % 2)})
      fill_half(ticket, request, half);
  }
  void fill_half(uint64_t ticket, const PortRequest& request, int half) {
    const PortWords words = request.words(PortFifo::phase_of(ticket));
    __atomic_store_n(&fifo_.words[ticket % PortFifo::slots].half[half], words.half[half], __ATOMIC_RELEASE);
  }
  bool is_complete(uint32_t peer, uint64_t ticket) const { return load(fifo_.completed[peer]) > ticket; }
  void wait_until_complete(uint32_t peer, uint64_t ticket) const {
    while (!is_complete(peer, ticket)) sched_yield();
  }

 private:
  static uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

  PortFifo& fifo_;
  std::atomic<uint64_t> tickets_{0};
};

// Queues all work and runs it in completed_markers(): at most `allowed` steps in total.
class FakeEngines final : public PortTransport {
 public:
  static constexpr uint64_t no_end = ~uint64_t{0};

  FakeEngines() : own(region_bytes), semaphores(size_t{ranks} * ports) {
    for (auto& memory : of_peer) memory.assign(region_bytes, 0xa5);
    for (size_t i = 0; i < own.size(); ++i) own[i] = static_cast<uint8_t>(i * 7 + i / 256);
  }

  ncast_status put(const PortRequest& request) override {
    ++puts;
    return later(request.peer, [this, request] {
      std::memcpy(&of_peer[request.peer][request.to.offset], &own[request.from.offset], request.bytes);
    });
  }
  ncast_status set_semaphore(uint32_t peer, uint32_t port, uint64_t count) override {
    ++signals;
    return later(peer, [this, peer, port, count] {
      __atomic_store_n(&semaphores[peer * ports + port], count, __ATOMIC_RELEASE);
    });
  }
  ncast_status record_marker(uint32_t peer) override {
    CHECK(++recorded[peer] - completed[peer] <= max_open_markers);
    return later(peer, [this, peer] { ++completed[peer]; });
  }
  ncast_status completed_markers(uint32_t peer, uint64_t* markers) override {
    if (fails) return fail(NCAST_CUDA_ERROR, "the link to rank %u failed", peer);
    for (auto& work = work_[peer]; !work.empty() && allowed != 0; work.pop_front()) {
      if (allowed != no_end) --allowed;
      work.front()();
    }
    *markers = completed[peer];
    return NCAST_OK;
  }

  uint64_t count(uint32_t peer, uint32_t port) const {
    return __atomic_load_n(&semaphores[peer * ports + port], __ATOMIC_ACQUIRE);
  }

  std::vector<uint8_t> own, of_peer[ranks];
  std::vector<uint64_t> semaphores;
  std::atomic<uint64_t> allowed{no_end};
  std::atomic<bool> fails{false};
  int puts = 0, signals = 0;
  uint64_t completed[ranks] = {}, recorded[ranks] = {};

 private:
  ncast_status later(uint32_t peer, std::function<void()> step) {
    work_[peer].push_back(std::move(step));
    return NCAST_OK;
  }
  std::deque<std::function<void()>> work_[ranks];
};

struct Ports {
  explicit Ports(double timeout_seconds = 0)
      : poster(*fifo), service({0, ranks, ports, {region_bytes, 100}, {timeout_seconds}}, *fifo, engines) {}

  // Serves until there is nothing more to do.
  ncast_status serve() {
    for (bool progressed = true; progressed;)
      if (ncast_status status = service.serve(&progressed)) return status;
    return NCAST_OK;
  }
  bool is_rejected(const PortRequest& request, const char* part) {
    poster.post(request);
    const int before = engines.puts + engines.signals;
    return serve() == NCAST_INVALID_ARGUMENT && std::string(ncast_last_error()).find(part) != std::string::npos &&
           engines.puts + engines.signals == before;
  }

  const std::unique_ptr<PortFifo> fifo = std::make_unique<PortFifo>();
  Poster poster;
  FakeEngines engines;
  PortService service;
};

inline PortRequest copy(uint32_t peer, uint64_t to, uint64_t from, uint32_t bytes, uint32_t more = 0,
                        uint32_t port = 0) {
  return {put | more, peer, port, {0, to}, {0, from}, bytes};
}

}  // namespace narrowcast::testing
