#include "executor/host/plan_facts.h"

#include <algorithm>

#include "codec/codec.h"

namespace narrowcast::executor::host {

using plan::ChannelKind;
using plan::Operand;
using plan::Place;

namespace {

bool names_scratch(const plan::Step& step) {
  const auto is_scratch = [](const Operand& one) { return one.has_location() && one.buffer == plan::Buffer::scratch; };
  return std::ranges::any_of(step.from, is_scratch) || std::ranges::any_of(step.to, is_scratch) ||
         std::ranges::any_of(step.body, names_scratch);
}

}  // namespace

bool is_rounded(const Operand& operand) {
  return operand.codec != NCAST_CODEC_RAW && operand.place != Place::message && !codec::is_exact(operand.codec);
}

PlanFacts::PlanFacts(const plan::Plan& plan)
    : encoded_packets(plan::find_encoded_packets(plan)), message_chunks(plan.channels.size(), 1) {
  for (const plan::Channel& channel : plan.channels) {
    has_semaphores = has_semaphores || channel.kind == ChannelKind::memory || channel.kind == ChannelKind::port;
  }
  for (int rank = 0; rank < plan.rank_count(); ++rank) {
    const plan::Rank& row = plan.ranks[static_cast<size_t>(rank)];
    uses_scratch = uses_scratch || row.scratch_chunks != 0;
    size_t groups_with_scratch = 0;
    for (const plan::Group& group : row.groups) {
      for (const plan::Step& step : group.steps) add(plan, rank, step);
      if (std::ranges::any_of(group.steps, names_scratch)) ++groups_with_scratch;
    }
    shares_scratch = shares_scratch || groups_with_scratch > 1;
  }
  // A plan that needs input and output to be the same memory needs it in shared memory too.
  if (plan.in_place == plan::InPlace::yes && (is_exposed[0] || is_exposed[1])) is_exposed[0] = is_exposed[1] = true;
}

void PlanFacts::add(const plan::Plan& plan, int rank, const plan::Step& step) {
  for (const plan::Step& inner : step.body) add(plan, rank, inner);
  reduces = reduces || step.kind == plan::StepKind::reduce;
  for (const std::vector<Operand>* operands : {&step.from, &step.to}) {
    for (const Operand& operand : *operands) {
      if (operand.place == Place::message) {
        message_chunks[operand.channel] = std::max(message_chunks[operand.channel], step.count);
      } else if (operand.place != Place::local || operand.packets) {
        is_exposed[static_cast<size_t>(operand.buffer)] = true;
      }
    }
  }
  for (const Operand& operand : step.from) {
    reduces = reduces || operand.place == Place::everywhere;
    reads_remote_packets = reads_remote_packets || (operand.packets && operand.place != Place::local);
  }
  for (const Operand& operand : step.to) {
    if (operand.packets && operand.place != Place::message) add_packet_writer(plan, rank, operand, step.count);
  }
}

void PlanFacts::add_packet_writer(const plan::Plan& plan, int rank, const Operand& operand, uint32_t count) {
  std::vector<int> owners = {rank};
  if (operand.place == Place::everywhere) owners = plan.channels[operand.channel].ranks;
  if (operand.place == Place::remote) {
    const plan::Channel& channel = plan.channels[operand.channel];
    owners = {channel.from == rank ? channel.to : channel.from};
  }
  for (const int owner : owners) {
    for (uint32_t i = 0; i < count; ++i) {
      packet_writers_[{owner, operand.buffer, operand.chunk + i}] |= uint64_t{1} << rank;
    }
  }
}

}  // namespace narrowcast::executor::host
