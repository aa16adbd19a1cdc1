// Batches of frames on the host: several threads take one array after the other.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "narrowcast/codec.h"
#include "status/error.h"
#include "threads/parallel.h"

namespace narrowcast::codec {
namespace {

// Calls work(item) for all items, those with the largest size first. work returns a status.
template <typename Size, typename Work>
ncast_status run(const char* what, size_t count, int threads, Size size, Work work) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t item) { return std::pair(~size(item), item); });
  threads::FirstError error;
  threads::for_each(count, threads::count_of(threads), [&](size_t at) { error.note(order[at], work(order[at])); });
  return error.status() == NCAST_OK ? NCAST_OK
                                    : fail(error.status(), "%s %zu: %s", what, error.item(), error.message().c_str());
}

ncast_status check_batch(const char* function, int threads, size_t count, bool has_arrays) {
  if (threads < 0) return fail(NCAST_INVALID_ARGUMENT, "%s: threads is %d, not 0 or more", function, threads);
  if (count != 0 && !has_arrays) return fail(NCAST_INVALID_ARGUMENT, "%s: an array is NULL", function);
  return NCAST_OK;
}

}  // namespace
}  // namespace narrowcast::codec

extern "C" {

ncast_status ncast_encode_batch(size_t count, const void* const* values, const ncast_dtype* dtypes,
                                const uint64_t* elems, ncast_codec codec, uint32_t flags, void* const* frames,
                                const size_t* capacities, size_t* wire_bytes, int threads) {
  constexpr const char* function = "ncast_encode_batch";
  return narrowcast::guarded(function, [&] {
    if (const ncast_status status = narrowcast::codec::check_batch(
            function, threads, count, values && dtypes && elems && frames && capacities && wire_bytes))
      return status;
    return narrowcast::codec::run(
        "array", count, threads, [&](size_t i) { return elems[i] * ncast_dtype_bytes(dtypes[i]); },
        [&](size_t i) {
          wire_bytes[i] = 0;
          size_t bytes = 0;
          const ncast_status status =
              ncast_encode(values[i], dtypes[i], elems[i], codec, flags, frames[i], capacities[i], &bytes);
          if (status == NCAST_OK) wire_bytes[i] = bytes;
          return status;
        });
  });
}

ncast_status ncast_decode_batch(size_t count, const void* const* frames, const size_t* frame_bytes, uint32_t flags,
                                void* const* values, const size_t* value_capacities, int threads) {
  constexpr const char* function = "ncast_decode_batch";
  return narrowcast::guarded(function, [&] {
    if (const ncast_status status = narrowcast::codec::check_batch(function, threads, count,
                                                                   frames && frame_bytes && values && value_capacities))
      return status;
    return narrowcast::codec::run(
        "frame", count, threads, [&](size_t i) { return uint64_t{value_capacities[i]}; },
        [&](size_t i) {
          return ncast_decode(frames[i], frame_bytes[i], flags, values[i], value_capacities[i], nullptr);
        });
  });
}

}  // extern "C"
