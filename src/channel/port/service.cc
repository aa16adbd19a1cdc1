#include "channel/port/service.h"

#include <cinttypes>
#include <utility>

#include "status/error.h"

namespace narrowcast::channel {
namespace {

constexpr int requests_a_turn = 64;

}  // namespace

PortService::PortService(PortBounds bounds, PortFifo& fifo, PortTransport& transport)
    : bounds_(std::move(bounds)), fifo_(fifo), transport_(transport), ways_(bounds_.ranks) {
  for (Way& way : ways_) way.raised.resize(bounds_.ports);
}

ncast_status PortService::serve(bool* moved) {
  *moved = false;
  for (uint32_t peer = 0; peer < bounds_.ranks; ++peer)
    if (ncast_status status = look_at_marks(peer, moved)) return status;
  for (int turn = 0; turn < requests_a_turn; ++turn) {
    PortRequest request;
    if (!next(&request)) break;
    if (ncast_status status = check(request)) return status;
    const Way& way = ways_[request.peer];
    if (way.made - way.reached == PortTransport::most_marks) return NCAST_OK;  // in order: those behind it wait as well
    if (ncast_status status = begin(request)) return status;
    ++taken_;
    __atomic_store_n(&fifo_.taken, taken_, __ATOMIC_RELEASE);
    *moved = true;
  }
  if (*moved) return NCAST_OK;
  // Puts that nobody asks about are looked after as well.
  for (uint32_t peer = 0; peer < bounds_.ranks; ++peer) {
    if (!ways_[peer].is_unmarked) continue;
    if (ncast_status status = mark(peer, 0)) return status;
    *moved = true;
  }
  return NCAST_OK;
}

bool PortService::is_idle() const {
  PortRequest request;
  if (next(&request)) return false;
  for (const Way& way : ways_)
    if (way.is_unmarked || way.made != way.reached) return false;
  return true;
}

// Acquire: what the kernel wrote before it posted comes before what is started now.
bool PortService::next(PortRequest* request) const {
  const uint64_t lap = PortFifo::lap_of(taken_);
  const PortWords& slot = fifo_.words[taken_ % PortFifo::slots];
  PortWords words;
  for (int half = 0; half < 2; ++half) {
    words.half[half] = __atomic_load_n(&slot.half[half], __ATOMIC_ACQUIRE);
    if ((words.half[half] & 1) != lap) return false;
  }
  *request = PortRequest::of(words);
  return true;
}

ncast_status PortService::check(const PortRequest& request) const {
  if (request.operations == 0)
    return fail(NCAST_INVALID_ARGUMENT, "a kernel of rank %d posted a request for nothing", bounds_.rank);
  if (request.peer >= bounds_.ranks)
    return fail(NCAST_INVALID_ARGUMENT, "a kernel of rank %d names rank %u, and there are %u", bounds_.rank,
                request.peer, bounds_.ranks);
  if (request.port >= bounds_.ports)
    return fail(NCAST_INVALID_ARGUMENT, "a kernel of rank %d names port %u to rank %u, and there are %u", bounds_.rank,
                request.port, request.peer, bounds_.ports);
  if ((request.operations & PortRequest::put) == 0) return NCAST_OK;
  if (ncast_status status = check_place("to", request.to, request)) return status;
  return check_place("from", request.from, request);
}

ncast_status PortService::check_place(const char* what, const PortPlace& place, const PortRequest& request) const {
  if (place.region >= bounds_.region_bytes.size())
    return fail(NCAST_INVALID_ARGUMENT, "a kernel of rank %d puts for rank %u %s region %u, and there are %zu",
                bounds_.rank, request.peer, what, place.region, bounds_.region_bytes.size());
  const uint64_t bytes = bounds_.region_bytes[place.region];
  if (request.bytes <= bytes && place.offset <= bytes - request.bytes) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT,
              "a kernel of rank %d puts %u bytes for rank %u %s offset %" PRIu64 " of region %u, which has %" PRIu64,
              bounds_.rank, request.bytes, request.peer, what, place.offset, place.region, bytes);
}

ncast_status PortService::begin(const PortRequest& request) {
  Way& way = ways_[request.peer];
  if ((request.operations & PortRequest::put) != 0 && request.bytes != 0) {
    if (ncast_status status = transport_.put(request)) return status;
    way.is_unmarked = true;
  }
  if ((request.operations & PortRequest::signal) != 0)
    if (ncast_status status = transport_.raise(request.peer, request.port, ++way.raised[request.port])) return status;
  if ((request.operations & PortRequest::flush) != 0) return mark(request.peer, taken_ + 1);
  return (request.operations & PortRequest::signal) != 0 ? mark(request.peer, 0) : NCAST_OK;
}

ncast_status PortService::mark(uint32_t peer, uint64_t completes) {
  Way& way = ways_[peer];
  if (ncast_status status = transport_.mark(peer)) return status;
  if (way.made == way.reached) way.since = bootstrap::Clock::now();
  way.completes[way.made % PortTransport::most_marks] = completes;
  ++way.made;
  way.is_unmarked = false;
  return NCAST_OK;
}

ncast_status PortService::look_at_marks(uint32_t peer, bool* moved) {
  Way& way = ways_[peer];
  if (way.made == way.reached) return NCAST_OK;
  uint64_t reached = 0;
  if (ncast_status status = transport_.marks_reached(peer, &reached)) return status;
  if (reached == way.reached) {
    if (!bounds_.limit.passed(way.since)) return NCAST_OK;
    return fail(NCAST_TIMEOUT, "what kernels of rank %d put for rank %u does not get there for more than %g seconds",
                bounds_.rank, peer, bounds_.limit.seconds);
  }
  *moved = true;
  way.since = bootstrap::Clock::now();
  for (; way.reached != reached; ++way.reached) {
    const uint64_t completes = way.completes[way.reached % PortTransport::most_marks];
    if (completes != 0) __atomic_store_n(&fifo_.completed[peer], completes, __ATOMIC_RELEASE);
  }
  return NCAST_OK;
}

}  // namespace narrowcast::channel
