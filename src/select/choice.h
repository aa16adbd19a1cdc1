// How a call is run: by packets or blocks, and coded or raw. Decided by what all ranks know, and nothing else.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "operation/operation.h"
#include "select/block_shape.h"
#include "select/cost_model.h"
#include "select/options.h"
#include "select/packet_shape.h"

namespace narrowcast::select {

// What every rank knows of a call. bytes: of its largest piece, that is of what one rank sends another: for all_reduce and
// reduce of the whole vector, for all_to_all_v unknown and 0.
struct CallShape {
  Operation operation;
  ncast_dtype dtype;
  ncast_codec codec;  // as asked for
  uint64_t bytes;
  int ranks;
  bool over_host = false;  // payloads go through host memory
  bool nvlink = true;      // all GPUs are linked by it
  uint32_t max_ctas = most_block_ctas;

  bool operator==(const CallShape&) const = default;
};

// What a communicator chooses by, the same on all its ranks. The model outlives it.
struct Policy {
  const CostModel& costs;
  WantedPath path = WantedPath::cheapest;
};

// What the model predicts for a call, in microseconds; 0: not known, or not possible.
struct Costs {
  double packets, raw, window, window_random, nccl, nccl_default;  // as Path has them
};
Costs costs_of(const CallShape& shape, const CostModel& model);

struct Choice {
  bool packets;       // the operation has them, and the message fits
  ncast_codec codec;  // RAW or WINDOW
  const char* reason;
  const char* packets_reason;

  // What of its costs is that of the choice.
  double cost(const Costs& costs) const {
    return packets ? costs.packets : codec == NCAST_CODEC_RAW ? costs.raw : costs.window;
  }
};

Choice choose(const CallShape& shape, const Policy& policy);

// The choices for the calls of late, of which programs make the same ones over and over: it takes longer to choose than to
// launch. One thread at a time.
class RecentChoices {
 public:
  const Choice& of(const CallShape& shape, const Policy& policy);

 private:
  struct Entry {
    CallShape shape;
    Choice choice;
  };
  std::array<std::optional<Entry>, 64> entries_;
};

// Nothing where the operation has no packets.
std::optional<PacketOperation> packet_operation(Operation operation);

// Does the root of a reduction to it take part in the work? Of several ranks it has enough to receive.
bool root_reduces(int ranks);
// Of a call by blocks: the warps of a CTA that serve one piece at its sender, or reduce it. codec: as chosen.
uint32_t piece_warps(Operation operation, ncast_dtype dtype, ncast_codec codec);
// The CTAs that it takes at most, where so many are agreed on. codec: as chosen. bytes: of the call, on all ranks the same; not
// looked at where ranks could differ.
uint32_t block_ctas(Operation operation, ncast_codec codec, uint64_t bytes, uint32_t max_ctas);

// How a call by blocks is cut.
struct BlockShape {
  uint32_t block_bytes;  // of values
  uint32_t rings;        // that share the largest piece
  uint32_t ctas, warps;  // warps: of a CTA
};
// codec: as chosen. max_ctas: as the ranks have agreed. A formula, not a measurement: costs are those of its shapes.
BlockShape choose_block_shape(const CallShape& shape, ncast_codec codec, uint32_t max_ctas);

}  // namespace narrowcast::select
