// Limits on the cost of plans. Plans can come from untrusted files, and a few bytes of JSON can ask for billions of
// steps. The limits are counts of operations, not seconds, so that a plan has the same verdict on every machine. A plan
// that exceeds one is unsupported: neither proved nor refuted, and not run.
#pragma once

#include <cstdint>

namespace narrowcast::plan {

inline constexpr uint32_t max_ranks = 1024;

// Of all ranks together, after lowering. A ring of 1024 ranks has two million.
inline constexpr uint64_t max_steps = 4'000'000;
// Everything else that a plan lists, after lowering: operands, channels of signals and waits, dependences, groups,
// channels, and groups of barriers.
inline constexpr uint64_t max_listed = 10'000'000;

// Of a proof, with loops unrolled and messages split.
inline constexpr uint64_t max_flat_steps = 4'000'000;
// Chunks of all buffers, with those in loops divided into parts.
inline constexpr uint64_t max_cells = 16'000'000;
// Entries of a vector clock: groups of all ranks that share memory with other groups.
inline constexpr uint64_t max_clock_entries = 4096;
// Signals between several groups on a channel are compared with each other.
inline constexpr uint32_t max_shared_signals = 10'000;

// For lowering, proving, simulating or scheduling a plan: the operations that spend() counts, each of which takes a few
// nanoseconds, and the bytes that HeldMemory counts (budget.h). A proof of a million steps takes a fifth of the
// operations and half of the memory.
inline constexpr uint64_t max_work = 6'000'000'000;
inline constexpr uint64_t max_memory_bytes = uint64_t{3} << 30;

// For plans to schedule, which takes many simulations of all steps.
inline constexpr uint64_t max_scheduled_steps = 250'000;

}  // namespace narrowcast::plan
