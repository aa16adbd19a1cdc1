// How a call runs: its candidate, codec and shape, with the reasons. Decided once, by what all ranks know; the executor
// launches what was decided and explanations print it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "select/block_split.h"
#include "select/call_shape.h"
#include "select/packet_shape.h"

namespace narrowcast::select {

// Microseconds of every candidate for a call.
Costs costs_of(const CallShape& shape, const CostModel& model);

struct Decision {
  // What runs: the name of a candidate; "copy" when no rank takes part but this one; "frames:raw" or "frames:window"
  // between processes; "none" when there is nothing to move. Of a string literal.
  std::string_view candidate;
  ncast_codec codec = NCAST_CODEC_RAW;
  const char* transport_reason = nullptr;
  const char* shots_reason = nullptr;  // NULL where the operation has no choice of shots
  const char* codec_reason = nullptr;
  std::optional<PacketShape> packets;  // of a call that runs by packets
  std::optional<BlockShape> blocks;    // of a call that runs by blocks
  uint32_t packet_bytes = 0;           // of one packet, with its flag
  Cost predicted;                      // of what runs
  Costs costs;                         // of every candidate

  bool runs_by_packets() const { return packets.has_value(); }
};

Decision decide(const CallShape& shape, const Policy& policy);

// The codec of a call between processes on CPUs.
constexpr ncast_codec codec_between_processes(ncast_codec asked) {
  return asked == NCAST_CODEC_AUTO ? ncast_codec{NCAST_CODEC_RAW} : asked;
}

// A comparison with NCCL, for callers that can also use NCCL. nccl: a candidate of NCCL. reason: why NCCL is the better
// choice; NULL when it is not.
struct Comparison {
  double microseconds, nccl_microseconds;  // 0: not known
  const char* reason;
};
Comparison compare(const Decision& decision, std::string_view nccl);

// Decisions for recent calls. Programs repeat the same calls, and deciding takes longer than launching. Any thread.
class Decisions {
 public:
  Decision of(const CallShape& shape, const Policy& policy);

 private:
  struct Entry {
    CallShape shape;
    Decision decision;
  };
  std::mutex mutex_;
  std::array<std::optional<Entry>, 64> entries_;
};

// Nothing where the operation does not run by packets.
std::optional<PacketOperation> packet_operation(Operation operation);

}  // namespace narrowcast::select
