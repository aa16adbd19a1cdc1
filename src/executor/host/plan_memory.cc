#include "executor/host/plan_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "status/error.h"

namespace narrowcast::executor::host {

using plan::Buffer;
using plan::ChannelKind;
using plan::Operand;
using plan::Place;
using plan::Step;

namespace {

constexpr size_t largest_part_bytes = 256 << 10;
constexpr size_t smallest_part_bytes = 64;
constexpr Buffer all_buffers[] = {Buffer::input, Buffer::output, Buffer::scratch};

size_t round_up(size_t bytes) {
  constexpr size_t line = channel::cache_line_bytes;
  return (bytes + line - 1) / line * line;
}

// What the steps of a group need.
struct Needs {
  bool frame = false, values = false, rounded = false, accumulator = false, inner = false;

  void add(const Step& step) {
    for (const Step& inner_step : step.body) add(inner_step);
    if (step.to.empty()) return;
    const auto is_reduced = [](const Operand& operand) { return operand.place == Place::everywhere; };
    const bool reduces = step.kind == plan::StepKind::reduce;
    const bool nested = std::ranges::any_of(step.from, is_reduced);
    accumulator = accumulator || reduces || nested;
    inner = inner || (reduces && nested);
    // Values are decoded here before they are reduced, or encoded otherwise, or if a location takes only some of them.
    // Those of a location are copied here before they are rounded in place.
    const auto is_coded = [](const Operand& operand) { return operand.codec != NCAST_CODEC_RAW; };
    const auto is_decoded = [&](const Operand& operand) {
      return operand.place == Place::message || is_coded(operand);
    };
    rounded = rounded || std::ranges::any_of(step.to, is_rounded);
    values = values || rounded || reduces || nested || std::ranges::any_of(step.from, is_decoded);
    frame = frame || std::ranges::any_of(step.to, is_coded);
  }
  size_t bytes(size_t part_bytes) const {
    return (size_t{values} + size_t{rounded} + size_t{accumulator} + size_t{inner}) * part_bytes +
           (frame ? payload_bound(part_bytes) : 0);
  }
};

Needs needs_of(const plan::Group& group) {
  Needs needs;
  for (const Step& step : group.steps) needs.add(step);
  return needs;
}

// What a rank may have besides the memory that it shares, as a multiple of scratch_bytes.
constexpr size_t private_share = 64;

// The private memory of the rank that needs most, so that all ranks divide calls into the same parts.
size_t private_bytes(const plan::Plan& plan, const PlanFacts& facts, size_t part_bytes) {
  size_t most = 0;
  for (const plan::Rank& rank : plan.ranks) {
    const bool has_scratch = facts.uses_scratch && !facts.exposes(Buffer::scratch);
    size_t bytes = has_scratch ? size_t{rank.scratch_chunks} * plan.scratch_copies * part_bytes : 0;
    for (const plan::Group& group : rank.groups) bytes += needs_of(group).bytes(part_bytes);
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

// The offsets of everything in the region of a loaded plan.
class PlanMemory::Layout {
 public:
  Layout(const plan::Plan& plan, const PlanFacts& facts, size_t part)
      : plan_(plan), facts_(facts), part_bytes_(part), slot_bytes_(payload_bound(part)) {
    bytes_ = round_up(sizeof(PaddedSemaphore)) * plan.channels.size();
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
      for (const Buffer buffer : all_buffers) {
        exposed_.push_back(bytes_);
        if (!facts.exposes(buffer)) continue;
        bytes_ += flags_bytes(rank, buffer) + parts_bytes(rank, buffer);
        if (buffer == Buffer::scratch && facts.encoded_packets.exist)
          bytes_ += part_count(rank, buffer) * PacketFrames::of(facts, part).bytes();
      }
    }
    for (size_t i = 0; i < plan.channels.size(); ++i) {
      rings_.push_back(bytes_);
      if (plan.channels[i].kind == ChannelKind::ring) bytes_ += ring_shape(i).ring_bytes();
    }
  }

  size_t bytes() const { return bytes_; }
  size_t ring(size_t channel) const { return rings_[channel]; }
  size_t exposed(int rank, Buffer buffer) const { return exposed_[index(rank, buffer)]; }
  size_t flags_bytes(int rank, Buffer buffer) const { return round_up(part_count(rank, buffer) * sizeof(uint64_t)); }
  size_t parts_bytes(int rank, Buffer buffer) const { return part_count(rank, buffer) * part_bytes_; }
  // As many slots as the chunks of `depth` messages: a message of several chunks uses one slot for each.
  channel::RingShape ring_shape(size_t channel) const {
    return {uint64_t{plan_.channels[channel].depth} * facts_.message_chunks[channel], slot_bytes_};
  }
  size_t slot_bytes() const { return slot_bytes_; }
  size_t part_count(int rank, Buffer buffer) const {
    return size_t{plan_.buffer_chunks(rank, buffer)} * (buffer == Buffer::scratch ? plan_.scratch_copies : 1);
  }

 private:
  const plan::Plan& plan_;
  const PlanFacts& facts_;
  size_t part_bytes_;
  size_t slot_bytes_;  // of a part, encoded by any codec
  size_t bytes_ = 0;
  std::vector<size_t> exposed_, rings_;
};

PlanMemory::PacketFrames PlanMemory::PacketFrames::of(const PlanFacts& facts, size_t part_bytes) {
  const size_t values_bytes = facts.encoded_packets.frame_bytes == 0
                                  ? part_bytes
                                  : std::min(part_bytes, static_cast<size_t>(facts.encoded_packets.frame_bytes));
  return {(part_bytes + values_bytes - 1) / values_bytes, payload_bound(values_bytes)};
}

void PlanMemory::use_rings(Communicator& comm, const plan::Plan& plan) {
  part_bytes_ = comm.staging.chunk_bytes();
  frame_bytes_ = comm.staging.frame_capacity_bytes();
  for (const plan::Channel& channel : plan.channels) {
    senders_.push_back(channel.from == comm.rank() ? &comm.world->to(channel.to) : nullptr);
    receivers_.push_back(channel.to == comm.rank() ? &comm.world->from(channel.from) : nullptr);
  }
}

void PlanMemory::make_private_scratch(const plan::Plan& plan, int rank) {
  const uint32_t chunks = scratch_chunks_[static_cast<size_t>(rank)];
  private_.resize(size_t{chunks} * plan.scratch_copies * part_bytes_);
  exposed_[index(rank, Buffer::scratch)].parts = private_.data();
}

ncast_status PlanMemory::borrow_rings(Communicator& comm, const plan::Plan& plan, const PlanFacts& facts,
                                      PlanMemory* memory) {
  memory->use_rings(comm, plan);
  memory->exposed_.resize(plan.ranks.size() * 3);
  for (const plan::Rank& rank : plan.ranks) memory->scratch_chunks_.push_back(rank.scratch_chunks);
  if (facts.uses_scratch) memory->make_private_scratch(plan, comm.rank());
  memory->make_group_buffers(plan.ranks[static_cast<size_t>(comm.rank())]);
  return NCAST_OK;
}

ncast_status PlanMemory::borrow(Communicator& comm, const plan::Plan& plan, PlanMemory* memory) {
  memory->use_rings(comm, plan);
  // The builders' plans have at most one group that needs such buffers. None rounds values for a location that takes
  // only some of them, which needs scratch.
  Staging& staging = comm.staging;
  const size_t groups = plan.ranks[static_cast<size_t>(comm.rank())].groups.size();
  memory->groups_.assign(groups, {staging.frame(), staging.values(), nullptr, staging.accumulator(), nullptr});
  return NCAST_OK;
}

bool PlanMemory::can_borrow(const Communicator& comm, const plan::Plan& plan, const PlanFacts& facts, uint32_t depth) {
  // Groups would overwrite each other's values in the staging buffers.
  if (std::ranges::any_of(plan.ranks, [](const plan::Rank& rank) { return rank.groups.size() > 1; })) return false;
  return !facts.uses_scratch && can_borrow_rings(comm, plan, facts, depth);
}

bool PlanMemory::can_borrow_rings(const Communicator& comm, const plan::Plan& plan, const PlanFacts& facts,
                                  uint32_t depth) {
  if (!facts.runs_freely() || depth > comm.staging.slots()) return false;
  std::set<std::pair<int, int>> pairs;
  return std::ranges::all_of(plan.channels, [&](const plan::Channel& channel) {
    return channel.kind == ChannelKind::ring && pairs.emplace(channel.from, channel.to).second;
  });
}

ncast_status PlanMemory::allocate(Communicator& comm, const plan::Plan& plan, const PlanFacts& facts,
                                  PlanMemory* memory) {
  const size_t scratch_bytes = scratch_bytes_of(comm.config());
  const size_t limit_bytes = scratch_bytes * static_cast<size_t>(comm.ranks());
  const size_t private_limit_bytes = scratch_bytes * private_share;
  size_t part = largest_part_bytes;
  while (part > smallest_part_bytes &&
         (Layout(plan, facts, part).bytes() > limit_bytes || private_bytes(plan, facts, part) > private_limit_bytes))
    part /= 2;
  const Layout layout(plan, facts, part);
  if (const size_t bytes = private_bytes(plan, facts, part); bytes > private_limit_bytes) {
    return fail(NCAST_INVALID_ARGUMENT,
                "the plan needs at least %zu bytes for scratch chunks and groups of a rank, but at most %zu times "
                "scratch_bytes (%zu) are possible",
                bytes, private_share, scratch_bytes);
  }
  if (layout.bytes() > limit_bytes) {
    return fail(NCAST_INVALID_ARGUMENT,
                "the plan needs at least %zu bytes of staging memory, but scratch_bytes of %d ranks are %zu",
                layout.bytes(), comm.ranks(), limit_bytes);
  }
  memory->part_bytes_ = part;
  memory->frame_bytes_ = layout.slot_bytes();
  memory->packet_frames_ = PacketFrames::of(facts, part);
  if (layout.bytes() != 0) {
    if (ncast_status status = comm.world->add_region(layout.bytes(), &memory->region_)) return status;
  }
  std::byte* const base = memory->region_.data();
  memory->semaphores_ = reinterpret_cast<PaddedSemaphore*>(base);
  const int self = comm.rank();
  for (size_t i = 0; i < plan.channels.size(); ++i) {
    const plan::Channel& channel = plan.channels[i];
    memory->senders_.push_back(nullptr);
    memory->receivers_.push_back(nullptr);
    if (channel.kind != ChannelKind::ring) continue;
    std::byte* const ring = base + layout.ring(i);
    if (channel.from == self) {
      memory->own_senders_.push_back(
          std::make_unique<channel::RingSender>(ring, layout.ring_shape(i), &comm.world->bell_of(channel.to)));
      memory->senders_[i] = memory->own_senders_.back().get();
    }
    if (channel.to == self) {
      memory->own_receivers_.push_back(
          std::make_unique<channel::RingReceiver>(ring, layout.ring_shape(i), &comm.world->bell_of(channel.from)));
      memory->receivers_[i] = memory->own_receivers_.back().get();
    }
  }
  memory->exposed_.resize(plan.ranks.size() * 3);
  for (int rank = 0; rank < plan.rank_count(); ++rank) {
    memory->scratch_chunks_.push_back(plan.ranks[static_cast<size_t>(rank)].scratch_chunks);
    for (const Buffer buffer : all_buffers) {
      if (!facts.exposes(buffer)) continue;
      std::byte* const flags = base + layout.exposed(rank, buffer);
      std::byte* const parts = flags + layout.flags_bytes(rank, buffer);
      memory->exposed_[index(rank, buffer)] = {parts, reinterpret_cast<std::atomic<uint64_t>*>(flags),
                                               parts + layout.parts_bytes(rank, buffer)};
    }
  }
  if (plan.in_place == plan::InPlace::yes && facts.exposes(Buffer::input)) memory->overlay_buffers(plan);
  if (facts.uses_scratch && !facts.exposes(Buffer::scratch)) memory->make_private_scratch(plan, self);
  memory->make_group_buffers(plan.ranks[static_cast<size_t>(self)]);
  return NCAST_OK;
}

// If input and output are the same memory, the smaller one is the part of the larger one that belongs to the rank.
void PlanMemory::overlay_buffers(const plan::Plan& plan) {
  for (int rank = 0; rank < plan.rank_count(); ++rank) {
    const uint32_t inputs = plan.input_chunks(rank);
    const uint32_t outputs = plan.output_chunks(rank);
    if (inputs == 0 || outputs == 0) continue;
    const Exposed& larger = exposed_[index(rank, inputs > outputs ? Buffer::input : Buffer::output)];
    Exposed& smaller = exposed_[index(rank, inputs > outputs ? Buffer::output : Buffer::input)];
    const size_t first = inputs == outputs ? 0 : static_cast<size_t>(rank) * plan.chunks;
    smaller = {larger.parts + first * part_bytes_, larger.flags + first, nullptr};
  }
}

void PlanMemory::make_group_buffers(const plan::Rank& rank) {
  const auto make = [this](bool needed, size_t bytes) -> std::byte* {
    return needed ? group_memory_.emplace_back(bytes).data() : nullptr;
  };
  for (const plan::Group& group : rank.groups) {
    const Needs needs = needs_of(group);
    groups_.push_back({make(needs.frame, frame_bytes_), make(needs.values, part_bytes_),
                       make(needs.rounded, part_bytes_), make(needs.accumulator, part_bytes_),
                       make(needs.inner, part_bytes_)});
  }
}

}  // namespace narrowcast::executor::host
