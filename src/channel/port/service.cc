#include "channel/port/service.h"

#include <cinttypes>
#include <utility>

#include "status/error.h"

namespace narrowcast::channel {
namespace {

constexpr int max_requests_per_turn = 64;

}  // namespace

PortService::PortService(PortBounds bounds, PortFifo& fifo, PortTransport& transport)
    : bounds_(std::move(bounds)), fifo_(fifo), transport_(transport), in_flight_(bounds_.ranks) {
  for (InFlight& work : in_flight_) work.signals.resize(bounds_.ports);
}

ncast_status PortService::serve(bool* progressed) {
  *progressed = false;
  for (uint32_t peer = 0; peer < bounds_.ranks; ++peer)
    if (ncast_status status = poll_markers(peer, progressed)) return status;
  for (int turn = 0; turn < max_requests_per_turn; ++turn) {
    PortRequest request;
    if (!next(&request)) break;
    if (ncast_status status = check(request)) return status;
    const InFlight& work = in_flight_[request.peer];
    // Later requests wait too, even those for other peers, because the FIFO is consumed in order.
    if (work.recorded_markers - work.completed_markers == PortTransport::max_open_markers) return NCAST_OK;
    if (ncast_status status = begin(request)) return status;
    ++consumed_;
    __atomic_store_n(&fifo_.consumed, consumed_, __ATOMIC_RELEASE);
    *progressed = true;
  }
  if (*progressed) return NCAST_OK;
  // Mark puts that no signal or flush follows, so that their failure or timeout is detected.
  for (uint32_t peer = 0; peer < bounds_.ranks; ++peer) {
    if (!in_flight_[peer].has_unmarked_puts) continue;
    if (ncast_status status = record_marker(peer, 0)) return status;
    *progressed = true;
  }
  return NCAST_OK;
}

bool PortService::is_idle() const {
  PortRequest request;
  if (next(&request)) return false;
  for (const InFlight& work : in_flight_)
    if (work.has_unmarked_puts || work.recorded_markers != work.completed_markers) return false;
  return true;
}

// Acquire, so that copies that are started for this request see the data that the kernel wrote before it posted.
bool PortService::next(PortRequest* request) const {
  const uint64_t phase = PortFifo::phase_of(consumed_);
  const PortWords& slot = fifo_.words[consumed_ % PortFifo::slots];
  PortWords words;
  for (int half = 0; half < 2; ++half) {
    words.half[half] = __atomic_load_n(&slot.half[half], __ATOMIC_ACQUIRE);
    if ((words.half[half] & 1) != phase) return false;
  }
  *request = PortRequest::of(words);
  return true;
}

ncast_status PortService::check(const PortRequest& request) const {
  if (request.operations == 0)
    return fail(NCAST_INVALID_ARGUMENT, "a kernel of rank %d posted a request without an operation", bounds_.rank);
  if (request.peer >= bounds_.ranks)
    return fail(NCAST_INVALID_ARGUMENT, "a kernel of rank %d used rank %u, but there are %u ranks", bounds_.rank,
                request.peer, bounds_.ranks);
  if (request.port >= bounds_.ports)
    return fail(NCAST_INVALID_ARGUMENT, "a kernel of rank %d used port %u to rank %u, but there are %u ports",
                bounds_.rank, request.port, request.peer, bounds_.ports);
  if ((request.operations & PortRequest::put) == 0) return NCAST_OK;
  if (ncast_status status = check_place("to", request.to, request)) return status;
  return check_place("from", request.from, request);
}

ncast_status PortService::check_place(const char* what, const PortPlace& place, const PortRequest& request) const {
  if (place.region >= bounds_.region_bytes.size())
    return fail(NCAST_INVALID_ARGUMENT,
                "a kernel of rank %d requested a put to rank %u, %s region %u, but there are %zu regions", bounds_.rank,
                request.peer, what, place.region, bounds_.region_bytes.size());
  const uint64_t bytes = bounds_.region_bytes[place.region];
  if (request.bytes <= bytes && place.offset <= bytes - request.bytes) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT,
              "a kernel of rank %d requested a put of %u bytes to rank %u, %s offset %" PRIu64
              " of region %u, which has %" PRIu64 " bytes",
              bounds_.rank, request.bytes, request.peer, what, place.offset, place.region, bytes);
}

ncast_status PortService::begin(const PortRequest& request) {
  InFlight& work = in_flight_[request.peer];
  if ((request.operations & PortRequest::put) != 0 && request.bytes != 0) {
    if (ncast_status status = transport_.put(request)) return status;
    work.has_unmarked_puts = true;
  }
  if ((request.operations & PortRequest::signal) != 0)
    if (ncast_status status = transport_.set_semaphore(request.peer, request.port, ++work.signals[request.port]))
      return status;
  if ((request.operations & PortRequest::flush) != 0) return record_marker(request.peer, consumed_ + 1);
  return (request.operations & PortRequest::signal) != 0 ? record_marker(request.peer, 0) : NCAST_OK;
}

ncast_status PortService::record_marker(uint32_t peer, uint64_t ticket) {
  InFlight& work = in_flight_[peer];
  if (ncast_status status = transport_.record_marker(peer)) return status;
  if (work.recorded_markers == work.completed_markers) work.last_progress = bootstrap::Clock::now();
  work.completed_tickets[work.recorded_markers % PortTransport::max_open_markers] = ticket;
  ++work.recorded_markers;
  work.has_unmarked_puts = false;
  return NCAST_OK;
}

ncast_status PortService::poll_markers(uint32_t peer, bool* progressed) {
  InFlight& work = in_flight_[peer];
  if (work.recorded_markers == work.completed_markers) return NCAST_OK;
  uint64_t reached = 0;
  if (ncast_status status = transport_.completed_markers(peer, &reached)) return status;
  if (reached == work.completed_markers) {
    if (!bounds_.limit.passed(work.last_progress)) return NCAST_OK;
    return fail(NCAST_TIMEOUT, "puts of rank %d to rank %u have made no progress for more than %g seconds",
                bounds_.rank, peer, bounds_.limit.seconds);
  }
  *progressed = true;
  work.last_progress = bootstrap::Clock::now();
  for (; work.completed_markers != reached; ++work.completed_markers) {
    const uint64_t ticket = work.completed_tickets[work.completed_markers % PortTransport::max_open_markers];
    if (ticket != 0) __atomic_store_n(&fifo_.completed[peer], ticket, __ATOMIC_RELEASE);
  }
  return NCAST_OK;
}

}  // namespace narrowcast::channel
