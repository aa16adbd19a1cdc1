#include "comm/arguments.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/combine.h"
#include "executor/backend.h"
#include "executor/communicator.h"
#include "status/error.h"
#include "status/sized_struct.h"

namespace narrowcast::comm {

using namespace executor;

namespace {

constexpr uint64_t max_bytes = uint64_t{1} << 62;

constexpr bool is_float(ncast_dtype dtype) { return dtype >= NCAST_FLOAT16; }

struct Buffer {
  const char* name;
  const void* address;
  uint64_t bytes;

  uintptr_t first() const { return reinterpret_cast<uintptr_t>(address); }
  bool overlaps(const Buffer& other) const {
    return bytes != 0 && other.bytes != 0 && first() < other.first() + other.bytes && other.first() < first() + bytes;
  }
};

struct Buffers {
  Buffer send, recv;
};

ncast_status check_buffer(const char* function, const Buffer& buffer, size_t value_bytes) {
  if (buffer.bytes == 0) return NCAST_OK;
  if (buffer.address == nullptr) return null_argument(function, buffer.name);
  if (buffer.first() % value_bytes != 0) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s is %p, which is not aligned to values of %zu bytes", function,
                buffer.name, buffer.address, value_bytes);
  }
  return NCAST_OK;
}

// The sizes of the buffers, in pieces of `count` values.
struct Shape {
  uint64_t send_pieces;  // 0: the call has no such buffer
  uint64_t recv_pieces;
};

Shape shape_of(const Call& call) {
  const auto ranks = static_cast<uint64_t>(call.comm->ranks());
  const bool is_root = call.comm->rank() == call.peer;
  const operation::Description& row = describe(call.operation);
  return {pieces(row.send, ranks, is_root), pieces(row.recv, ranks, is_root)};
}

Buffers buffers_of(const Call& call, const Shape& shape) {
  const uint64_t piece_bytes = call.count * ncast_dtype_bytes(call.dtype);
  const bool moves_both = !is_point_to_point(call.operation);
  return {{moves_both ? "send" : "values", call.send, shape.send_pieces * piece_bytes},
          {moves_both ? "recv" : "values", call.recv, shape.recv_pieces * piece_bytes}};
}

// The nonempty ranges of a buffer of all_to_all_v, sorted by address, each with the rank that its values go to or come
// from.
struct RankRange {
  Buffer buffer;
  int rank;
};
ncast_status ranges_of(const Call& call, const char* name, const void* start,
                       const std::vector<PeerCounts::Range>& by_rank, std::vector<RankRange>* ranges) {
  const char* function = function_name(call.operation);
  const size_t value_bytes = ncast_dtype_bytes(call.dtype);
  const uint64_t max_elems = max_bytes / value_bytes;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto [first, elems] = by_rank[rank];
    if (elems == 0) continue;
    if (elems > max_elems || first > max_elems - elems) {
      return fail(NCAST_INVALID_ARGUMENT,
                  "%s: %s_counts[%zu] is %" PRIu64 " and %s_offsets[%zu] is %" PRIu64
                  ", which exceeds the address space",
                  function, name, rank, elems, name, rank, first);
    }
    if (ncast_status status = check_buffer(function, {name, start, elems * value_bytes}, value_bytes)) return status;
    const void* address = static_cast<const std::byte*>(start) + first * value_bytes;
    ranges->push_back({{name, address, elems * value_bytes}, static_cast<int>(rank)});
  }
  std::ranges::sort(*ranges, {}, [](const RankRange& range) { return range.buffer.first(); });
  return NCAST_OK;
}

ncast_status check_peer_counts(const Call& call) {
  const char* function = function_name(call.operation);
  const PeerCounts& counts = *call.peer_counts;
  std::vector<RankRange> sent;
  std::vector<RankRange> received;
  if (ncast_status status = ranges_of(call, "send", call.send, counts.send, &sent)) return status;
  if (ncast_status status = ranges_of(call, "recv", call.recv, counts.recv, &received)) return status;
  for (size_t i = 1; i < received.size(); ++i) {
    if (!received[i - 1].buffer.overlaps(received[i].buffer)) continue;
    return fail(NCAST_INVALID_ARGUMENT, "%s: the values from ranks %d and %d overlap in recv", function,
                received[i - 1].rank, received[i].rank);
  }
  for (const RankRange& to : sent) {
    for (const RankRange& from : received) {
      if (!to.buffer.overlaps(from.buffer)) continue;
      return fail(NCAST_INVALID_ARGUMENT,
                  "%s: the values to rank %d overlap those from rank %d, but the operation does not work in place",
                  function, to.rank, from.rank);
    }
  }
  const auto rank = static_cast<size_t>(call.comm->rank());
  if (counts.send[rank].elems == counts.recv[rank].elems) return NCAST_OK;
  return fail(NCAST_MISMATCH, "%s: rank %zu sends itself %" PRIu64 " values but receives %" PRIu64, function, rank,
              counts.send[rank].elems, counts.recv[rank].elems);
}

ncast_status check_reduction(const char* function, const Call& call) {
  if (const int op = call.redop; op < NCAST_SUM || op > NCAST_AVG)
    return fail(NCAST_INVALID_ARGUMENT, "%s: op is %d, which is not a reduction", function, op);
  if (!call.factor) return NCAST_OK;
  if (call.redop != NCAST_SUM || !is_float(call.dtype))
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s (%s) of %s has no factor: only sums of floats have", function,
                operation::name_of(call.operation), operation::redop_names[call.redop], ncast_dtype_name(call.dtype));
  return check_buffer(function, {"device_factor", call.factor->in_memory, call.factor->in_memory == nullptr ? 0U : 1U},
                      ncast_dtype_bytes(call.dtype));
}

// The sends and receives between a rank and itself. Send i matches receive i.
struct SelfCalls {
  std::vector<const Call*> sends;
  std::vector<const Call*> receives;
  void add(const Call& call) { (call.operation == Operation::send ? sends : receives).push_back(&call); }
};

ncast_status check_seconds(const char* setting, double seconds) {
  if (seconds >= 0 && std::isfinite(seconds)) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT, "ncast_comm_create: %s is %g, not 0 or more", setting, seconds);
}

}  // namespace

ncast_status check_codec(const char* function, Operation operation, ncast_dtype dtype, ncast_redop op,
                         ncast_codec codec) {
  if (const ncast_status status = codec::check_of_call(function, codec)) return status;
  if (codec::is_exact(codec) || codec::is_within(codec)) return NCAST_OK;  // a budget allows exact codecs too
  const bool has_sums = !reduces(operation) || op == NCAST_SUM || op == NCAST_AVG;
  if (is_float(dtype) && has_sums) return NCAST_OK;
  std::string what = operation::name_of(operation);
  if (reduces(operation)) what += std::string(" (") + operation::redop_names[op] + ")";
  return fail(NCAST_INVALID_ARGUMENT, "%s: %s of %s cannot use codec %s, which is not exact", function, what.c_str(),
              ncast_dtype_name(dtype), codec::describe(codec).c_str());
}

ncast_status check_result_codec(const char* function, Operation operation, ncast_dtype dtype, ncast_redop op,
                                ncast_codec codec, ncast_codec result_codec) {
  if (operation != Operation::all_reduce)
    return fail(NCAST_INVALID_ARGUMENT, "%s: result_codec is only for all_reduce, not for %s", function,
                operation::name_of(operation));
  if (const ncast_status status = check_codec(function, operation, dtype, op, result_codec)) return status;
  if (codec::canonical(codec) == codec::canonical(result_codec)) return NCAST_OK;
  const codec::Row *const sent = codec::find_row(codec), *const returned = codec::find_row(result_codec);
  if (sent != nullptr && returned != nullptr && codec::combine(*sent, *returned)) return NCAST_OK;  // not auto
  return fail(NCAST_INVALID_ARGUMENT, "%s: result_codec %s does not combine with codec %s: %s", function,
              codec::describe(result_codec).c_str(), codec::describe(codec).c_str(), codec::who_combines);
}

ncast_status check_on_gpu(const char* function, ncast_codec codec, std::optional<ncast_codec> result_codec) {
  if (const ncast_status status = codec::check_on_gpu(function, codec)) return status;
  return result_codec ? codec::check_on_gpu(function, *result_codec) : NCAST_OK;
}

std::optional<ncast_codec> other_codec(ncast_codec codec, std::optional<ncast_codec> result_codec) {
  if (!result_codec || codec::canonical(*result_codec) == codec::canonical(codec)) return std::nullopt;
  return codec::canonical(*result_codec);
}

ncast_status check_arguments(const Call& call) { return check_arguments(call, describe(call.operation).overlap); }

ncast_status check_arguments(const Call& call, operation::Overlap overlap) {
  const char* function = function_name(call.operation);
  const size_t value_bytes = ncast_dtype_bytes(call.dtype);
  if (value_bytes == 0) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: dtype is %d, which is not a value type", function,
                static_cast<int>(call.dtype));
  }
  if (ncast_status status = check_reduction(function, call)) return status;
  if (const ncast_status status = check_codec(function, call.operation, call.dtype, call.redop, call.codec))
    return status;
  if (call.result_codec)
    if (ncast_status status =
            check_result_codec(function, call.operation, call.dtype, call.redop, call.codec, *call.result_codec))
      return status;
  if (call.comm->backend() == NCAST_BACKEND_CUDA)
    if (const ncast_status status = check_on_gpu(function, call.codec, call.result_codec)) return status;
  const int ranks = call.comm->ranks();
  if (call.peer < 0 || call.peer >= ranks) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s is %d, but the communicator has ranks 0 to %d", function,
                has_root(call.operation) ? "root" : "peer", call.peer, ranks - 1);
  }
  if (call.count > max_bytes / value_bytes / static_cast<uint64_t>(ranks)) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: count is %" PRIu64 ", which exceeds the address space", function,
                call.count);
  }
  if (call.operation == Operation::all_to_all_v) return check_peer_counts(call);
  const Shape shape = shape_of(call);
  const auto [send, recv] = buffers_of(call, shape);
  if (ncast_status status = check_buffer(function, send, value_bytes)) return status;
  if (ncast_status status = check_buffer(function, recv, value_bytes)) return status;
  if (!send.overlaps(recv)) return NCAST_OK;
  // In place, this rank's piece must be at the same address in both buffers.
  const uint64_t own = static_cast<uint64_t>(call.comm->rank()) * call.count * value_bytes;
  const bool coincide =
      send.first() + (shape.send_pieces > 1 ? own : 0) == recv.first() + (shape.recv_pieces > 1 ? own : 0);
  const bool may_be_in_place = overlap == operation::Overlap::IN_PLACE;
  if (may_be_in_place && coincide) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT, "%s: send %p and recv %p overlap%s", function, call.send, call.recv,
              may_be_in_place ? " but are not in place" : ", but the operation does not work in place");
}

bool is_in_place(const Call& call) {
  const auto [send, recv] = buffers_of(call, shape_of(call));
  return send.overlaps(recv);
}

ncast_status check_sends_to_self(std::span<const Call> calls) {
  std::map<const ncast_comm*, SelfCalls> by_comm;
  for (const Call& call : calls) {
    if (is_to_self(call)) by_comm[call.comm].add(call);
  }
  for (const auto& [comm, self] : by_comm) {
    if (self.sends.size() != self.receives.size()) {
      return fail(NCAST_INVALID_ARGUMENT,
                  "rank %d sends to itself %zu times and receives from itself %zu times in one group; the numbers must "
                  "be equal",
                  comm->rank(), self.sends.size(), self.receives.size());
    }
    for (size_t i = 0; i < self.sends.size(); ++i) {
      const CallTag send = make_tag(*self.sends[i], 0);
      const CallTag receive = make_tag(*self.receives[i], 0);
      if (same_call(send, receive)) continue;
      return fail(NCAST_MISMATCH, "rank %d sends itself %" PRIu64 " %s but receives %" PRIu64 " %s (they differ in %s)",
                  comm->rank(), send.count, ncast_dtype_name(self.sends[i]->dtype), receive.count,
                  ncast_dtype_name(self.receives[i]->dtype), differences(send, receive).c_str());
    }
  }
  return NCAST_OK;
}

ncast_status check_one_level(const char* function, const ncast_comm& comm) {
  if (!comm.has_levels()) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED, "%s: the communicator has two levels, which decide about their own calls; %s",
              function, one_level_hint);
}

ncast_status read_config(const ncast_comm_config* given, ncast_comm_config* config) {
  ncast_comm_config_init(config);
  return given == nullptr ? NCAST_OK : read_struct("config", *given, offsetof(ncast_comm_config, max_ctas), config);
}

ncast_status check_config(int ranks, int rank, const ncast_comm_config& config) {
  constexpr const char* function = "ncast_comm_create";
  if (ranks < 1) return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d, not 1 or more", function, ranks);
  if (rank < 0 || rank >= ranks) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: rank is %d, not 0 to %d", function, rank, ranks - 1);
  }
  const char* backend = backend_name(config.backend);
  if (backend == nullptr) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: backend is %d, which is not a backend", function,
                static_cast<int>(config.backend));
  }
  if (find_backend(config.backend) == nullptr) {
    return fail(NCAST_UNSUPPORTED, "%s: this build has no %s backend", function, backend);
  }
  if (config.device < -1) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: device is %d, not -1 or more", function, config.device);
  }
  if (ncast_status status = check_seconds("timeout_seconds", config.timeout_seconds)) return status;
  if (ncast_status status = check_seconds("create_timeout_seconds", config.create_timeout_seconds)) return status;
  if (ncast_status status = find_backend(config.backend)->check_config(ranks, config)) {
    const std::string message = ncast_last_error();
    return fail(status, "%s: %s", function, message.c_str());
  }
  return NCAST_OK;
}

}  // namespace narrowcast::comm
