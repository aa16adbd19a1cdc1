// Constants and formulas of calls by blocks: warps and registers of the kernels, rings and slots of a piece, CTAs of a
// call. Kernels, also those compiled by NVRTC, and host code share them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "narrowcast/types.h"

namespace narrowcast::select {

// Every warp that sends, receives or reduces has three buffers of a block in shared memory, so the number of warps of a
// CTA depends on what the GPU has: 227 KiB (Hopper, B200), 163 (A100), 99 (8.6, 8.9, 12.0). The rings of a piece depend
// on the number of warps, so the ranks of a communicator agree on the least shared memory of their GPUs.
inline constexpr uint32_t most_shared_bytes = 227 * 1024;
inline constexpr uint32_t least_shared_bytes = 64 * 1024;
// The most such warps of a CTA.
inline constexpr uint32_t most_warps_with_buffers = 16;
// Upper bounds of the sizes in the kernels, which assert them: scratch of a codec, ends of a reducing warp, what warps
// share.
inline constexpr uint32_t most_scratch_bytes = 800;
inline constexpr uint32_t reducing_state_bytes = 800;
inline constexpr uint32_t common_memory_bytes = 2304;
// Shared memory of such a warp. state_bytes: what it has besides buffers, scratch and a barrier.
constexpr uint32_t warp_memory_bytes(uint32_t block_bytes, uint32_t state_bytes) {
  constexpr uint32_t alignment = 128;
  return (8 + most_scratch_bytes + state_bytes + alignment - 1) / alignment * alignment + 3 * block_bytes;
}
// Shared memory of a CTA with this many of them.
constexpr uint32_t cta_memory_bytes(uint32_t warps, uint32_t block_bytes, uint32_t state_bytes) {
  return common_memory_bytes + warps * warp_memory_bytes(block_bytes, state_bytes);
}
// The most of them for which this much shared memory suffices.
constexpr uint32_t warps_in_memory(uint32_t shared_bytes, uint32_t block_bytes, uint32_t state_bytes) {
  return (shared_bytes - common_memory_bytes) / warp_memory_bytes(block_bytes, state_bytes);
}

// The warps of a CTA that moves values, by role. One more warp raises the flags.
struct MoveWarps {
  uint32_t senders, receivers;
  // Few warps copy the local part: memory is several times as fast as the links.
  static constexpr uint32_t copiers = 3;

  constexpr uint32_t with_buffers() const { return senders + receivers; }
  constexpr uint32_t all() const { return senders + receivers + copiers + 1; }
  // Of a CTA with so many warps. Encoding takes longer than decoding. keeps: the senders also decode what they have
  // encoded, and store it.
  static constexpr MoveWarps of(uint32_t all, bool keeps = false) {
    const uint32_t with_buffers = all - copiers - 1;
    const uint32_t receivers = keeps ? (3 * with_buffers + 4) / 8 : with_buffers / 2;
    return {with_buffers - receivers, receivers};
  }
};
// shared_bytes: of a CTA.
constexpr MoveWarps move_warps(uint32_t shared_bytes, uint32_t block_bytes) {
  const uint32_t most = block_bytes > 4096 ? 8 : most_warps_with_buffers;
  const uint32_t fit = warps_in_memory(shared_bytes, block_bytes, 0);
  return MoveWarps::of((fit < most ? fit : most) + MoveWarps::copiers + 1);
}

// The warps of a CTA that reduces. Registers limit their number, and half of them hold a warp's sums. Sums of one-byte
// values need twice the registers.
constexpr uint32_t reduce_warps(uint32_t shared_bytes, uint32_t block_bytes, size_t value_bytes) {
  const uint32_t most = block_bytes > 4096 || value_bytes == 1 ? 8 : 16;
  const uint32_t fit = warps_in_memory(shared_bytes, block_bytes, reducing_state_bytes) + 1;
  return fit < most ? fit : most;
}
// The index of the warp that raises the flags, in the middle of the others.
constexpr uint32_t signal_warp_of(uint32_t warps) { return warps / 8 * 4; }
// Every other warp has one ring.
constexpr uint32_t reduce_rings(uint32_t warps) { return warps - 1; }

// Each CTA occupies an SM. A call uses at most this many of them and leaves the other SMs to concurrent kernels.
inline constexpr uint32_t most_block_ctas = 64;
// Registers of a thread that moves values. The launch bounds determine those of a thread that reduces.
constexpr uint32_t most_move_registers(uint32_t block_bytes) { return block_bytes > 4096 ? 120 : 96; }
// An SM has four partitions with 16384 registers each. The warps of a CTA are assigned to the partitions in turn.
constexpr bool registers_suffice(uint32_t warps, uint32_t registers) {
  return (warps + 3) / 4 * 32 * registers <= 65536 / 4;
}
static_assert(registers_suffice(move_warps(most_shared_bytes, 4096).all(), most_move_registers(4096)));
static_assert(registers_suffice(move_warps(most_shared_bytes, 8192).all(), most_move_registers(8192)));
// Above this size the local part of a collective is copied by CTAs of its own: a warp copies at half speed on an SM
// that also writes to peers. Eight SMs of an H200 copy as fast as the links carry raw values, and twelve as fast as
// they carry encoded ones (own_copy_ctas()). The remaining CTAs move as much as all of them did.
inline constexpr uint64_t most_bytes_of_copiers = uint64_t{16} << 20;
// The rings of a channel. The warps of a broadcast that relay values need two sets; the warps of a reduction need one.
constexpr uint32_t rings_of_ctas(uint32_t ctas, uint32_t shared_bytes) {
  return ctas * 2 * move_warps(shared_bytes, 4096).senders;
}

// The maximum through host memory. Every waiting warp polls flags over the host link, and few warps saturate it. Those
// of lossy codecs encode more values for each byte that they send, so twice as many pay.
constexpr uint32_t most_ctas_over_host(uint32_t shared_bytes, bool is_exact) {
  return (is_exact ? 128 : 256) / move_warps(shared_bytes, 4096).senders;
}

// How many rings share a piece, if `warps` warps can serve it. Both ends compute the same number.
constexpr uint32_t rings_of(uint64_t bytes, uint32_t block_bytes, uint32_t warps) {
  const uint64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  return static_cast<uint32_t>(blocks < warps ? blocks : warps);
}
// The same for a reduction, whose rings process their blocks in step: the fewest rings that take the same number of
// turns.
constexpr uint32_t rings_in_step(uint64_t bytes, uint32_t block_bytes, uint32_t warps) {
  const uint64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  const uint64_t turns = (blocks + warps - 1) / warps;
  return turns == 0 ? 0 : static_cast<uint32_t>((blocks + turns - 1) / turns);
}
// How many turns ahead of the reduction blocks are sent, and how many turns behind it results are received. With few
// slots it must be 0: a block sent ahead would wait for a slot that is freed only after it.
constexpr uint32_t turns_ahead(uint32_t slots) { return slots >= 4 ? 1 : 0; }
// How many of a ring's slots a piece uses. Payloads in few slots stay in the receiver's L2 cache; long pieces gain more
// from a larger distance between sender and receiver. Measured between four H200. Through host memory, where credits
// take longest, all slots are used: a call may then begin before the receiver has read the slots of the one before.
constexpr uint32_t slots_of(uint64_t bytes, uint32_t block_bytes, uint32_t rings, uint32_t slots, bool over_host) {
  uint32_t used = slots;
  while (!over_host && used > 4 && bytes < uint64_t{2} * used * rings * block_bytes) used /= 2;
  return used;
}
// One CTA for each ring, up to the maximum: the blocks of short calls go to different SMs.
constexpr uint32_t ctas_of(uint32_t rings, uint32_t max_ctas) { return rings < max_ctas ? rings : max_ctas; }

// From this size on, raw values are written directly to the receiver's registered memory. Shorter pieces arrive through
// slots before the receiver's invitation would reach the sender. Measured between two H200.
inline constexpr uint64_t min_direct_bytes = uint64_t{4} << 20;

// How many of the sending warps serve a piece with this many rings. A warp serves one piece only. all_rings: of all
// `pieces` pieces.
constexpr uint32_t warps_of_piece(uint32_t rings, uint32_t all_rings, uint32_t pieces, uint32_t warps) {
  return all_rings <= warps ? rings : 1 + (warps - pieces) * rings / all_rings;
}

}  // namespace narrowcast::select
