// How a call runs: its candidate, codec and shape, and why. A decision depends only on what all ranks know. It is made
// once: the executor launches it, and explanations print it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "select/block_split.h"
#include "select/call_shape.h"
#include "select/packet_shape.h"
#include "select/plan_candidate.h"

namespace narrowcast::select {

class TwoLevels;

// The same on all ranks of a communicator. What it refers to must outlive it.
struct Policy {
  const CostModel& costs;
  ForcedTransport transport = ForcedTransport::none;
  // The plans that calls may run instead of the built-in way, and the user's choice between them, if there is one.
  const PlanList* plans = nullptr;
  const PlanSelector* selector = nullptr;
  const TwoLevels* levels = nullptr;  // of the link two_levels
};

struct Decision {
  // The name of the candidate that runs. Not in the table of candidates: "copy", a rank that is alone copies its
  // values; "none", there are no values; the name of a plan. Ends with a 0; as long-lived as the plans of the policy.
  std::string_view candidate;
  // The plan that runs: the name of a builder of plan/builders/, which hand-written kernels implement too, or of
  // `chosen`. NULL: no plan describes the call.
  const char* plan = nullptr;
  const PlanCandidate* chosen = nullptr;  // a plan that runs instead of the built-in way; NULL: none
  const char* plan_reason = nullptr;      // why it does
  ncast_codec codec = NCAST_CODEC_RAW;    // of the values on the link: raw, or one that the call allows
  // Of the results of an all_reduce, if the values on the link are encoded and the call has another codec for these;
  // `codec` is then that of the contributions.
  std::optional<ncast_codec> result_codec;
  const char* transport_reason = nullptr;
  const char* shots_reason = nullptr;  // NULL if the operation has only one way
  const char* codec_reason = nullptr;
  // The built-in way, also if a plan runs instead.
  const char* built_in_plan = nullptr;  // as `plan`
  std::optional<PacketShape> packets;   // set if the call runs by packets
  std::optional<BlockShape> blocks;     // set if the call runs by blocks
  uint32_t packet_bytes = 0;            // of one packet, including its flag
  Cost predicted;                       // of the candidate that runs
  Cost nccl, nccl_default;              // NCCL's fastest way, and its default

  bool runs_by_packets() const { return packets.has_value(); }
};

Decision decide(const CallShape& shape, const Policy& policy);

// A comparison with NCCL, for programs that can also use NCCL.
struct Comparison {
  double microseconds, nccl_microseconds;  // 0: not known
  const char* reason;                      // why NCCL is the better choice; NULL if it is not
};
// with_default: with what NCCL does by default, instead of its fastest way.
Comparison compare(const Decision& decision, bool with_default);

}  // namespace narrowcast::select
