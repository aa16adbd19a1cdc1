#include "plan/encoded_packets.h"

#include <numeric>

namespace narrowcast::plan {
namespace {

constexpr uint64_t least_frame_bytes = 16;

// loop: that contains the step; NULL: none.
void add(const Step& step, const Step* loop, EncodedPackets* packets) {
  for (const Step& inner : step.body) add(inner, &step, packets);
  for (const auto* operands : {&step.from, &step.to}) {
    for (const Operand& operand : *operands) {
      if (!operand.packets || operand.codec == NCAST_CODEC_RAW) continue;
      packets->exist = true;
      if (loop != nullptr) packets->frame_bytes = std::gcd(packets->frame_bytes, loop->unit_bytes);
    }
  }
}

}  // namespace

EncodedPackets find_encoded_packets(const Plan& plan) {
  EncodedPackets packets;
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps) add(step, nullptr, &packets);
  // Frames begin at values, whatever the type, and tiny ones would be longer than values.
  if (packets.frame_bytes % least_frame_bytes != 0) packets.exist = false;
  return packets;
}

}  // namespace narrowcast::plan
