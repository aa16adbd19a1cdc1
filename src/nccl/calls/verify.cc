#include "nccl/calls/verify.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "nccl/libraries/cuda_driver.h"
#include "nccl/policy/decision.h"
#include "nccl/ranks/exchange.h"
#include "nccl/report/log.h"
#include "nccl/settings/text.h"

#define XXH_INLINE_ALL
#include <xxhash/xxhash.h>

namespace narrowcast::nccl {
namespace {

using Bytes = std::vector<unsigned char>;

// Values that this rank contributes to the call.
uint64_t sent_elems(const Call& call, int rank, int ranks) {
  switch (call.operation) {
    case NCAST_OP_RECV: return 0;
    case NCAST_OP_BROADCAST: return call.peer == rank ? call.count : 0;
    case NCAST_OP_SCATTER: return call.peer == rank ? call.count * static_cast<uint64_t>(ranks) : 0;
    case NCAST_OP_ALL_TO_ALL:
    case NCAST_OP_REDUCE_SCATTER: return call.count * static_cast<uint64_t>(ranks);
    default: return call.count;
  }
}

// Uses the host codec, whose frames are identical to those of the GPU.
bool round_trip(const Bytes& values, ncast_dtype dtype, uint64_t elems, ncast_codec codec, Bytes* result) {
  const Engine& narrowcast = *engine();
  Bytes frame(narrowcast.ncast_bound(dtype, codec, elems));
  size_t wire_bytes = 0;
  result->resize(values.size());
  return narrowcast.ncast_encode(values.data(), dtype, elems, codec, NCAST_NO_CHECKSUM, frame.data(), frame.size(),
                                 &wire_bytes) == NCAST_OK &&
         narrowcast.ncast_decode(frame.data(), wire_bytes, 0, result->data(), result->size(), nullptr) == NCAST_OK;
}

// The codec that the engine chooses among those that the call allows.
std::optional<ncast_codec> chosen_codec(Communicator& comm, const EngineCall& one) {
  if (one.codec == NCAST_CODEC_RAW) return one.codec;
  const CallShape shape = shape_of(one.call, one.call.operation, comm.ranks, comm.has_windows.load());
  return codec_of(shape, one.codec, predictor_of(comm));
}

bool read(const void* from, CudaStream stream, Bytes* values) {
  const bool read_all = driver()->cuMemcpyDtoHAsync_v2(values->data(), from, values->size(), stream) == 0 &&
                        driver()->cuStreamSynchronize(stream) == 0;
  if (!read_all) log(Level::warn, "verify: values on a GPU cannot be read");
  return read_all;
}

const char* at(const void* buffer, const Call& call, size_t piece) {
  return static_cast<const char*>(buffer) + piece * piece_bytes(call);
}

// After the call: the address of the values sent to a peer (piece_for) or received from it (piece_from); NULL: none. An
// all-gather may be in place, so its input is read from the output. For an all-reduce both are the result. With a codec
// that is not exact, the result of a broadcast differs from the root's input and is the same on all ranks.
const void* piece_for(const Call& call, const Communicator& comm, size_t peer, bool exact) {
  const bool is_root = call.peer == comm.rank, to_root = call.peer == static_cast<int>(peer);
  switch (call.operation) {
    case NCAST_OP_ALL_GATHER: return at(call.recv, call, static_cast<size_t>(comm.rank));
    case NCAST_OP_ALL_REDUCE: return call.recv;
    case NCAST_OP_ALL_TO_ALL: return at(call.send, call, peer);
    case NCAST_OP_BROADCAST: return is_root ? (exact ? call.send : call.recv) : nullptr;
    case NCAST_OP_SCATTER: return is_root ? at(call.send, call, peer) : nullptr;
    case NCAST_OP_GATHER: return to_root ? call.send : nullptr;
    default: return nullptr;
  }
}
const void* piece_from(const Call& call, const Communicator& comm, size_t peer) {
  const bool is_root = call.peer == comm.rank, from_root = call.peer == static_cast<int>(peer);
  switch (call.operation) {
    case NCAST_OP_ALL_GATHER:
    case NCAST_OP_ALL_TO_ALL: return at(call.recv, call, peer);
    case NCAST_OP_ALL_REDUCE: return static_cast<int>(peer) != comm.rank ? call.recv : nullptr;
    case NCAST_OP_BROADCAST:
    case NCAST_OP_SCATTER: return from_root ? call.recv : nullptr;
    case NCAST_OP_GATHER: return is_root ? at(call.recv, call, peer) : nullptr;
    default: return nullptr;
  }
}

// nullopt: there is no piece, or it could not be read, which has been logged.
std::optional<uint64_t> hash_of(const void* piece, const Call& call) {
  if (piece == nullptr) return std::nullopt;
  Bytes values(piece_bytes(call));
  if (!read(piece, call.stream, &values)) return std::nullopt;
  return XXH3_64bits(values.data(), values.size());
}

// Whether results can be compared between ranks: parts with what was sent, or equal results with each other. With a
// lossy codec, only results that are the same on all ranks can be compared.
bool is_comparable(Operation operation, bool exact) {
  if (!exact)
    return operation == NCAST_OP_ALL_GATHER || operation == NCAST_OP_ALL_REDUCE || operation == NCAST_OP_BROADCAST;
  return !is_point_to_point(operation) && operation != NCAST_OP_REDUCE && operation != NCAST_OP_REDUCE_SCATTER;
}

}  // namespace

void verify_codec(Communicator& comm, const EngineCall& engine_call) {
  const Call& call = engine_call.call;
  const uint64_t elems = sent_elems(call, comm.rank, comm.ranks);
  if (elems == 0 || capture_id(call.stream) != 0) return;
  Bytes values(elems * value_bytes(call.dtype)), result;
  if (!read(call.send, call.stream, &values)) return;
  const std::optional<ncast_codec> codec = chosen_codec(comm, engine_call);
  if (!codec) {
    log(Level::warn, "verify: %s of %zu values: the codec is not known", name_of(call.operation), call.count);
    return;
  }
  if (!round_trip(values, static_cast<ncast_dtype>(call.dtype), elems, *codec, &result)) {
    log(Level::warn, "verify: %s of %zu values: %s", name_of(call.operation), call.count, engine()->ncast_last_error());
    return;
  }
  if (!is_exact(engine_call.codec)) return;
  const auto differs = std::ranges::mismatch(values, result).in1;
  if (differs != values.end())
    log(Level::warn, "verify: %s of %zu values: the codec changes value %zu", name_of(call.operation), call.count,
        static_cast<size_t>(differs - values.begin()) / value_bytes(call.dtype));
  else
    log(Level::info, "verify: %s of %zu values: the codec preserves what this rank sends", name_of(call.operation),
        call.count);
}

void verify_result(Communicator& comm, const EngineCall& engine_call) {
  const Call& call = engine_call.call;
  const bool exact = is_exact(engine_call.codec);
  if (!is_comparable(call.operation, exact)) return;
  const DeviceGuard guard(comm.device);
  if (capture_id(call.stream) != 0) return;
  // On every rank, before the exchange: on one rank the call may wait for the others. read() reports failures.
  driver()->cuStreamSynchronize(call.stream);
  const auto ranks = static_cast<size_t>(comm.ranks), own = static_cast<size_t>(comm.rank);
  // Hashes of what this rank has for each peer, and of what all have: [rank * ranks + peer].
  std::vector<uint64_t> mine(ranks), all(ranks * ranks);
  for (size_t peer = 0; peer < ranks; ++peer)
    mine[peer] = hash_of(piece_for(call, comm, peer, exact), call).value_or(0);
  if (mine.size() * sizeof mine[0] > max_exchange_bytes ||
      exchange_bytes(&comm, mine.data(), ranks * sizeof mine[0], all.data()) != success)
    return;
  // Sums, and values that a codec has changed, are compared with the results of other ranks, not with what was sent.
  const bool between_results = reduces(call.operation) || !exact;
  size_t arriving = 0, identical = 0;
  for (size_t peer = 0; peer < ranks; ++peer) {
    const void* const arrived = piece_from(call, comm, peer);
    if (arrived == nullptr) continue;
    ++arriving;
    const auto hash = hash_of(arrived, call);
    if (hash == all[peer * ranks + own])
      ++identical;
    else if (hash)
      log(Level::warn, "verify: %s of %zu values: the result on rank %zu differs from %s rank %zu",
          name_of(call.operation), call.count, own, between_results ? "that on" : "what was sent by", peer);
  }
  if (arriving != 0 && identical == arriving)
    log(Level::info, "verify: %s of %zu values: the result %s", name_of(call.operation), call.count,
        between_results ? "is the same on all ranks" : "equals what was sent");
}

}  // namespace narrowcast::nccl
