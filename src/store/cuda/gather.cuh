// The gather kernel: warps fetch rows from host memory ahead of time, decode them in shared memory and store them.
#pragma once

#include <cstdint>

#include "../../device/copy.cuh"
#include "../../device/ptx/bulk_copy.cuh"
#include "../../device/warp.cuh"
#include "../rows/format.h"
#include "bit_stream.cuh"
#include "call_words.cuh"
#include "fetch_ring.cuh"
#include "gather_arguments.h"
#include "lane_row.cuh"
#include "row_output.cuh"
#include "team.cuh"
#include "tile.cuh"
#include "zero_map.cuh"

namespace narrowcast::store::cuda {

// A coder for device code decodes the rows of the warp's tiles from payloads in shared memory:
//
//   Staged       an element as it is decoded, an unsigned integer
//   piece_elems  elements that are decoded at a time
//   Team         Team: several warps decode a row, and each takes every so many-th piece
//   has_header   false: the payload is the row, and nothing below is used
//   map_bit      where the zero map begins in the payload, in bits
//   Coder(tile, team, row_format, coder_format, header, payload, payload_bytes, before_body, elems, scratch)
//       payload: begins with the header word; 4-byte aligned. payload_bytes: readable bytes, 0 in tiles without a row.
//       before_body: bytes of the header word and, in whole words, of the zero map. elems: of those that reach the
//       coder. scratch: of the warp; shared memory that `to` may overlap
//   elems()      the same, or 0 if the payload is too short for them
//   decode<is_output>(piece, to)  decodes a piece to `to` (the output or shared memory, 16-byte aligned); called for
//       all pieces in order until no tile has any left. The warps of a team call it equally often, at last for pieces
//       that do not exist
//   decode_whole<lanes, is_output>(piece, to)  optional: the same if all pieces exist and have 32 * lanes elements;
//       lanes: of a tile
//   has_bits(coder_format)  false: all elements are 0, need not be decoded, and ok() is known before
//   ok()         after the last piece: false in any lane of a tile whose payload does not follow the format; anything
//       in tiles without a row
//
// has_cache: the selection has entries, whose rows may be in a cache (CachedRows).
template <typename Coder, bool has_cache>
class Gather {
  using Team = typename Coder::Team;

 public:
  // taken: of the CTA, 0. memory: of the team.
  __device__ Gather(const GatherArguments& arguments, const TableState& state, const Team& team, uint32_t* taken,
                    char* memory, int lane)
      : arguments_(arguments),
        format_(arguments.format),
        shape_(arguments.shape),
        team_(team),
        tile_(tile_of<Team>(arguments.shape.tile_lanes, lane)),
        lane_(lane),
        scratch_(memory + team.warp() * shape_.staged_bytes),
        staged_(scratch_ + tile_.number * shape_.staged_area),
        spare_(memory + team.warps() * shape_.staged_bytes + shape_.sums_bytes),
        usual_bytes_(usual_bytes(arguments)),
        ring_(arguments, state.row_count, !Coder::has_header && has_redirects(state, arguments.selection.cached), taken,
              spare_ + shape_.spare_rows * shape_.spare_area, team_, lane) {}

  __device__ void run() {
    for (; ring_.has_step(); ring_.advance()) {
      ring_.wait();
      const FetchedRow fetched = ring_.row(tile_.number);
      char* const slot = ring_.slot(tile_.number, fetched);
      char* const out = arguments_.selection.out + fetched.output * arguments_.selection.out_stride;
      if (has_cache && __any_sync(device::all_lanes, !ring_.is_cached(fetched)))
        fill(ring_.fill_way(tile_.number), fetched, slot);
      if constexpr (Coder::has_header) {
        const uint32_t header = *reinterpret_cast<const uint32_t*>(slot);  // of tiles without a row, too
        if (__all_sync(device::all_lanes, is_usual(fetched.bytes(), header))) {
          bool ok = true;
          if constexpr (Team::has_lane_rows)
            ok = decode_lane_rows(header, slot, fetched.bytes(), fetched.output);
          else
            ok = decode_to_output(header, slot, fetched.bytes(), out);
          if (!team_.all(ok))
            reject({true, ring_.is_cached(fetched), header, slot, fetched.bytes(), out, fetched.output}, ok);
          continue;
        }
      }
      step(fetched, slot, out);
      team_.sync();
    }
  }

 private:
  // A row of a tile: its payload in shared memory.
  struct Row {
    bool exists;     // false: the tile has none
    bool is_cached;  // it is in the cache
    uint32_t header;
    const char* payload;
    uint32_t payload_bytes;  // at most
    char* out;
    uint32_t output;  // position in the output
  };

  __device__ static bool has_redirects(const TableState& state, const CachedRows& cached) {
    return state.has_redirects != 0 || (has_cache && *cached.has_redirects != 0);
  }

  // Most rows are in their slots and not raw, and their elements go straight to the output, because nothing remains to
  // be done to them. They have a path of their own.
  __device__ bool is_usual(uint32_t payload_bytes, uint32_t header) const {
    return payload_bytes - uint32_t{header_bytes} < usual_bytes_ && (header & (place_mask | raw_bit)) == 0;
  }
  // Usual payloads are shorter than a header word and this; 0: there are none.
  __device__ static uint32_t usual_bytes(const GatherArguments& arguments) {
    const RowFormat& format = arguments.format;
    const bool has_stages = Team::has_stages && (format.has_zeros != 0 || format.has_trim != 0);
    const bool is_direct = arguments.selection.unit_bytes == 16 && !has_stages;
    return device::opaque(is_direct ? arguments.shape.slot_bytes - header_bytes + 1 : 0);
  }

  // Copies the fetched part of a payload to a way of the cache, or to none if it is -1.
  __device__ void fill(int32_t way, const FetchedRow& fetched, const char* slot) {
    if (!__any_sync(device::all_lanes, way >= 0) || team_.warp() != 0) return;
    const CachedRows& cached = arguments_.selection.cached;
    if (!Coder::has_header && way >= 0 && (ring_.header(tile_.number) & place_mask) == place_redirect) {
      // The payload is elsewhere.
      if (tile_.lane == 0) cached.rows[way] = -1;
      way = -1;
    }
    char* const to = const_cast<char*>(cached.slots) + uint64_t{static_cast<uint32_t>(way)} * cached.slot_bytes;
    const uint32_t bytes = min(fetched.bytes(), cached.slot_bytes);
    copy_row(tile_, to, slot, way >= 0 ? bytes : 0, cached.unit_bytes);
    store_zeros(tile_, to + bytes, way >= 0 ? cached.slot_bytes - bytes : 0);
  }

  __device__ void step(const FetchedRow& fetched, const char* slot, char* out) {
    const uint32_t payload_bytes = fetched.bytes(), slot_bytes = min(payload_bytes, shape_.slot_bytes);
    const bool exists = payload_bytes != 0;
    uint32_t header = 0;
    if (exists) header = Coder::has_header ? header_of(slot, slot_bytes) : ring_.header(tile_.number);
    // A row that had moved when it came into the cache is rejected below.
    const bool is_redirected = exists && !ring_.is_cached(fetched) && (header & place_mask) == place_redirect;
    const bool is_far = is_redirected || payload_bytes > shape_.slot_bytes;
    const bool is_bad = fetched.output != no_row && !exists;
    Row row{exists && !is_far, ring_.is_cached(fetched), header, slot, slot_bytes, out, fetched.output};
    uint32_t far = 0;  // lanes
    if (__any_sync(device::all_lanes, is_bad || is_far)) {
      store_zeros(tile_, out, is_bad && team_.warp() == 0 ? format_.row_bytes : 0);
      count_rows(arguments_.counters->bad_indices, is_bad);
      count_rows(arguments_.counters->redirected_rows, is_redirected);
      far = __ballot_sync(device::all_lanes, exists && is_far && tile_.lane == 0);
    }
    while (true) {
      decode(row);
      if (far == 0) return;
      team_.sync();
      row.exists = false;
      const uint32_t places = max(shape_.spare_rows, 1u);
      for (uint32_t place = 0; place < places && far != 0; ++place, far &= far - 1) {
        const int from = __ffs(static_cast<int>(far)) - 1;
        const uint32_t its_header = __shfl_sync(device::all_lanes, header, from);
        const uint32_t its_output = __shfl_sync(device::all_lanes, fetched.output, from);
        const Payload payload = far_payload(its_output, its_header);
        char* const to = shape_.spare_rows != 0 ? spare_ + place * shape_.spare_area : ring_.slot_part(0, 0);
        if (team_.warp() == 0)
          device::copy_by_warp(to, reinterpret_cast<const void*>(payload.address), payload.bytes, lane_);
        device::order_stores_before_bulk_copies();  // that fetch another row into the slot
        char* const its_out = reinterpret_cast<char*>(shuffle(reinterpret_cast<uintptr_t>(out), from));
        if (tile_.number == place) row = {true, false, its_header, to, payload.bytes, its_out, its_output};
        if (lane_ == 0 && team_.warp() == 0)
          atomicAdd(&arguments_.counters->fetched_bytes, static_cast<unsigned long long>(payload.bytes));
      }
      team_.sync();
      // The header of a long payload is the one that was found first: it may have become a redirect since then. The
      // payload stays what it was until this call has ended.
      if (Coder::has_header && row.exists && (row.header & place_mask) == place_redirect)
        row.header = header_of(row.payload, row.payload_bytes);
    }
  }

  // Where a row is that is not, or not entirely, in its slot. No bytes if the redirect is invalid.
  __device__ Payload far_payload(uint32_t output, uint32_t header) const {
    if ((header & place_mask) != place_redirect) {
      const Payload payload = ring_.payload_of(ring_.number_of(output));
      return {payload.address, min(payload.bytes, shape_.spare_area)};
    }
    const RowPlaces& places = arguments_.places;
    const uint32_t entry = header >> redirect_shift;
    if (entry >= places.entry_count) return {reinterpret_cast<uintptr_t>(places.entries), 0};
    return {reinterpret_cast<uintptr_t>(places.entries) + entry * places.entry_stride, shape_.spare_area};
  }

  __device__ void decode(const Row& row) {
    bool ok = true;
    if constexpr (!Coder::has_header) {
      ok = !row.exists || row.payload_bytes >= format_.row_bytes;
      const uint32_t bytes = row.exists && ok ? format_.row_bytes : 0;
      if (tile_.lanes == 1 && arguments_.selection.unit_bytes == 16 &&
          __all_sync(device::all_lanes, reinterpret_cast<uintptr_t>(row.payload) % 16 == 0))
        copy_short_rows(row.out, row.payload, bytes);
      else
        copy_row(tile_, row.out, row.payload, bytes, arguments_.selection.unit_bytes);
    } else {
      const bool is_coded = row.exists && (row.header & (raw_bit | place_mask)) == place_here;
      if (!__all_sync(device::all_lanes, is_coded)) ok = copy_raw(row, is_coded);
      if (__any_sync(device::all_lanes, is_coded)) {
        const bool follows_format = decode_in_pieces(row, is_coded);
        ok = ok && (!is_coded || follows_format);
      }
    }
    if (!team_.all(ok)) reject(row, ok);
  }

  // The same for tiles of one lane, from multiples of 16.
  __device__ void copy_short_rows(char* out, const char* payload, uint32_t bytes) const {
    store_short_rows(
        lane_, [&](int row) { return __shfl_sync(device::all_lanes, bytes, row); },
        [&](int row) { return reinterpret_cast<char*>(shuffle(reinterpret_cast<uintptr_t>(out), row)); },
        [&](int row, int part, bool exists) {
          const auto from = shuffle(reinterpret_cast<uintptr_t>(payload), row) + part * sizeof(uint4);
          return exists ? *reinterpret_cast<const uint4*>(from) : uint4{};
        });
  }

  // Copies the rows that are not coded. Whether a row is coded, can be copied, or does not exist.
  __device__ bool copy_raw(const Row& row, bool is_coded) const {
    const bool is_raw = row.exists && (row.header & raw_bit) != 0;
    const bool ok = !is_raw || (row.header == raw_bit && row.payload_bytes >= 4 + format_.row_bytes);
    copy_row(tile_, row.out, row.payload + 4, is_raw && ok && team_.warp() == 0 ? format_.row_bytes : 0,
             arguments_.selection.unit_bytes);
    return ok && row.exists == (is_raw || is_coded);
  }

  // ok: false in any lane of a row that is not. Such rows become zeros.
  __device__ void reject(const Row& row, bool ok) {
    // The rows of the tiles of a warp, or the only row of a team.
    ok = Team::is_alone ? tile_.all(ok) : team_.warp() != 0;
    store_zeros(tile_, row.out, ok ? 0 : format_.row_bytes);
    if (tile_.lane == 0 && !ok) count_rejected(row);
  }

  // Counts the tiles where `condition` holds.
  __device__ void count_rows(unsigned long long& counter, bool condition) const {
    if (condition && tile_.lane == 0 && team_.warp() == 0) atomicAdd(&counter, 1ull);
  }

  __device__ void count_rejected(const Row& row) {
    const CachedRows& cached = arguments_.selection.cached;
    if (has_cache && row.is_cached)
      cached.retries[atomicAdd(cached.retry_count, 1u)] =
          entry_of(static_cast<uint32_t>(ring_.number_of(row.output)), row.output);
    else
      atomicAdd(&arguments_.counters->corrupt_rows, 1ull);
  }

  // Decodes the rows of the lanes in their slots, from which four lanes store each.
  __device__ bool decode_lane_rows(uint32_t header, char* slot, uint32_t payload_bytes, uint32_t output) {
    constexpr uint32_t elems = 32, row_bytes = elems * sizeof(typename Coder::Staged);
    bool ok = true;
    uint4 vectors[LaneRow::vectors];
    if (__all_sync(device::all_lanes, LaneRow(slot).decode(vectors))) {
#pragma unroll
      for (uint32_t i = 0; i < LaneRow::vectors; ++i) reinterpret_cast<uint4*>(slot)[i] = vectors[i];
    } else {
      Coder coder(tile_, team_, format_, arguments_.coder, header, slot, payload_bytes, header_bytes, elems, scratch_);
      coder.template decode_whole<1, false>(0, slot);
      ok = coder.ok();
    }
    __syncwarp();
    const uint32_t all_ok = __ballot_sync(device::all_lanes, ok);
    store_short_rows(
        lane_, [&](int row) { return (all_ok >> row & 1) != 0 ? row_bytes : 0; },
        [&](int row) {
          return arguments_.selection.out +
                 __shfl_sync(device::all_lanes, output, row) * arguments_.selection.out_stride;
        },
        [&](int row, int part, bool) {
          return *reinterpret_cast<const uint4*>(
              ring_.slot_part(static_cast<uint32_t>(row), static_cast<uint32_t>(part)));
        });
    return ok;
  }

  __device__ bool decode_to_output(uint32_t header, const char* payload, uint32_t payload_bytes, char* out) {
    Coder coder(tile_, team_, format_, arguments_.coder, header, payload, payload_bytes, header_bytes, format_.elems,
                scratch_);
    const auto decode_pieces = [&](auto decode_piece) {
      for (uint32_t first_of_team = 0; first_of_team < format_.elems;
           first_of_team += team_.warps() * Coder::piece_elems) {
        const uint32_t first = first_of_team + team_.warp() * Coder::piece_elems;
        decode_piece(first / Coder::piece_elems, out + first * sizeof(typename Coder::Staged));
      }
    };
    if constexpr (requires(Coder& of_rows, char* to) { of_rows.template decode_whole<32, true>(0, to); }) {
      if constexpr (Team::tile_lanes == 0 || Team::tile_lanes == 32) {
        if (format_.elems % (team_.warps() * Coder::piece_elems) == 0) {
          decode_pieces([&](uint32_t piece, char* to) { coder.template decode_whole<32, true>(piece, to); });
          return coder.ok();
        }
      }
      if constexpr (Team::has_fixed_lanes) {
        if (format_.elems == Team::tile_lanes * 32) {
          coder.template decode_whole<Team::tile_lanes, true>(0, out);
          return coder.ok();
        }
      }
      if constexpr (Team::tile_lanes == 0) {
        if (format_.elems == 4 * 32) {
          coder.template decode_whole<4, true>(0, out);
          return coder.ok();
        }
      }
    }
    decode_pieces([&](uint32_t piece, char* to) { coder.template decode<true>(piece, to); });
    return coder.ok();
  }

  __device__ bool decode_in_pieces(const Row& row, bool is_coded) {
    using Staged = typename Coder::Staged;
    const uint32_t payload_bytes = is_coded ? row.payload_bytes : 0;
    const BitStream payload(row.payload, payload_bytes);
    ZeroMap map(format_, tile_, payload, Coder::map_bit);
    const bool has_zeros = Team::has_stages && format_.has_zeros != 0;
    const bool has_trim = Team::has_stages && format_.has_trim != 0;
    const bool has_bits = Coder::has_bits(arguments_.coder), has_only_map = has_zeros && !has_bits;
    uint32_t coded = is_coded ? format_.elems : 0;
    if (has_zeros) coded = has_only_map ? 0 : map.count();
    const uint32_t before_body = header_bytes + (has_zeros ? (format_.elems + 31) / 32 * 4 : 0);
    Coder coder(tile_, team_, format_, arguments_.coder, row.header, row.payload, payload_bytes, before_body, coded,
                scratch_);
    if (has_only_map) {
      const bool ok = coder.ok();
      // Not `map`, which is in memory because of the call below.
      ZeroMap(format_, tile_, payload, Coder::map_bit).template store_fill<Staged>(row.out, is_coded && ok);
      return ok;
    }
    // No elements if the payload is too short.
    const uint32_t elems = coder.elems(), most = __reduce_max_sync(device::all_lanes, elems);
    // Lanes with rows of their own have loaded all of a payload before they store the first element.
    char* const staged = Team::has_lane_rows ? ring_.slot_part(tile_.number, 0) : staged_;
    uint32_t first_of_team = 0;
    do {
      const uint32_t first = first_of_team + team_.warp() * Coder::piece_elems;
      if (has_bits) coder.template decode<false>(first / Coder::piece_elems, staged);
      __syncwarp();
      const uint32_t count = first < elems ? min(elems - first, Coder::piece_elems) : 0;
      char* const to = row.out + first * sizeof(Staged);
      if (has_zeros) {
        map.template store<Staged>(row.out, staged, first, count, first + count >= elems, is_coded && elems == coded);
      } else if (has_trim) {
        store_untrimmed<Staged>(tile_, format_, to, has_bits ? staged : nullptr, count);
      } else {
        copy_row(tile_, to, staged, count * sizeof(Staged), arguments_.selection.unit_bytes);
      }
      __syncwarp();
      first_of_team += team_.warps() * Coder::piece_elems;
    } while (first_of_team < most);
    return coder.ok();
  }

  // A payload without a header word is damaged: its place does not exist.
  __device__ static uint32_t header_of(const char* payload, uint32_t bytes) {
    return bytes >= 4 ? *reinterpret_cast<const uint32_t*>(payload) : place_mask;
  }
  __device__ static uint64_t shuffle(uint64_t value, int from) {
    return __shfl_sync(device::all_lanes, static_cast<unsigned long long>(value), from);
  }

  const GatherArguments& arguments_;
  const RowFormat& format_;
  const GatherShape& shape_;
  Team team_;
  Tile tile_;
  int lane_;
  char* scratch_;  // of the warp: where the elements of all tiles are staged
  char* staged_;
  char* spare_;
  uint32_t usual_bytes_;
  FetchRing<Team, has_cache> ring_;
};

template <typename Coder, bool has_cache>
__device__ void gather(const GatherArguments& arguments, char* shared_memory) {
  const TableState state = arguments.reader.state != nullptr ? *arguments.reader.state : arguments.state;
  const GatherShape& shape = arguments.shape;
  auto* const taken = reinterpret_cast<uint32_t*>(shared_memory);
  if (threadIdx.x == 0) *taken = 0;
  __syncthreads();
  char* const memory = shared_memory + taken_bytes + device::warp_id() / shape.team_warps * shape.team_bytes;
  const typename Coder::Team team(shape.team_warps,
                                  reinterpret_cast<uint32_t*>(memory + shape.team_warps * shape.staged_bytes));
  Gather<Coder, has_cache>(arguments, state, team, taken, memory, device::lane_id()).run();
  end_call(arguments.reader);
}

}  // namespace narrowcast::store::cuda
