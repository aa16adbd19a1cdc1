#include "executor/cuda/generated/program.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "codec/codec.h"
#include "executor/cuda/generated/schedule.h"
#include "plan/encoded_packets.h"
#include "select/block_split.h"
#include "status/error.h"

namespace narrowcast::executor::cuda::generated {
namespace {

using plan::Operand;
using plan::Step;
using plan::StepKind;

class Builder {
 public:
  Builder(const plan::Plan& plan, Program& program) : plan_(plan), program_(program) {}

  ncast_status build(uint32_t max_slots) {
    if (ncast_status status = check_limits()) return status;
    if (ncast_status status = check_sums()) return status;
    if (ncast_status status = find_codec()) return status;
    if (ncast_status status = find_encoded_packets()) return status;
    for (int rank = 0; rank < plan_.rank_count(); ++rank)
      if (ncast_status status = add_rank(rank)) return status;
    if (ncast_status status = match_messages()) return status;
    find_packet_writers();
    add_semaphore_words();
    find_accesses();
    program_.asks_for_packets =
        !program_.messages.empty() &&
        std::ranges::all_of(program_.messages, [&](const Message& one) { return channel(one.channel).packets; });
    if (!trace_values(plan_, &program_))
      return fail(NCAST_INVALID_ARGUMENT, "the plan '%s' does not complete", plan_.name.c_str());
    const uint32_t slots = max_slots * channel::ChannelLayout::slot_bytes / program_.block_bytes;
    return schedule(plan_, ends_, slots, &program_);
  }

 private:
  const plan::Channel& channel(uint32_t index) const { return plan_.channels[index]; }

  ncast_status check_limits() const {
    if (plan_.rank_count() > channel::max_gpu_ranks)
      return fail(NCAST_UNSUPPORTED, "the plan '%s' has %d ranks, but the CUDA backend has at most %d",
                  plan_.name.c_str(), plan_.rank_count(), channel::max_gpu_ranks);
    if (plan_.chunks > ChunkRef::max_chunk)
      return fail(NCAST_UNSUPPORTED, "the plan '%s' divides a piece into %u chunks, but generated kernels support %u",
                  plan_.name.c_str(), plan_.chunks, ChunkRef::max_chunk);
    return NCAST_OK;
  }

  template <typename Visit>
  void visit_operands(Visit visit) const {
    const auto visit_steps = [&](const std::vector<Step>& steps, auto& self) -> void {
      for (const Step& step : steps) {
        for (const Operand& operand : step.from) visit(operand);
        for (const Operand& operand : step.to) visit(operand);
        self(step.body, self);
      }
    };
    for (const plan::Rank& rank : plan_.ranks)
      for (const plan::Group& group : rank.groups) visit_steps(group.steps, visit_steps);
  }

  ncast_status check_sums() const {
    bool is_partial = false;
    visit_operands([&](const Operand& operand) { is_partial = is_partial || operand.partial; });
    if (!is_partial) return NCAST_OK;
    return fail(NCAST_UNSUPPORTED, "the plan '%s' has partial sums, which generated kernels do not support",
                plan_.name.c_str());
  }

  ncast_status find_codec() {
    ncast_status status = NCAST_OK;
    visit_operands([&](const Operand& operand) {
      if (status != NCAST_OK || (!can_be_encoded(operand) && !is_rounded(operand))) return;
      const ncast_codec codec = codec::effective_codec(program_.dtype, operand.codec);
      if (codec == NCAST_CODEC_RAW) return;
      if ((status = codec::check_on_gpu(plan_.name.c_str(), codec)) != NCAST_OK) return;
      if (program_.codec != NCAST_CODEC_RAW && program_.codec != codec)
        status = fail(NCAST_UNSUPPORTED, "the plan '%s' uses two codecs; generated kernels support one besides raw",
                      plan_.name.c_str());
      program_.codec = codec;
    });
    program_.block_bytes = select::block_bytes(program_.dtype, program_.codec);
    return status;
  }

  // Memory holds values, with room for all of them, so only messages and packets are encoded.
  static bool can_be_encoded(const Operand& operand) {
    return operand.place == plan::Place::message || operand.packets;
  }
  bool is_rounded(const Operand& operand) const {
    return operand.place == plan::Place::local && !operand.packets &&
           !codec::is_exact(codec::effective_codec(program_.dtype, operand.codec));
  }
  // Packets must have the payloads of the other executors, whose frames start again at every unit of a loop. Warps
  // encode whole blocks, so every unit must consist of whole blocks.
  ncast_status find_encoded_packets() {
    const plan::EncodedPackets packets = plan::find_encoded_packets(plan_);
    if (!packets.exist || program_.codec == NCAST_CODEC_RAW) return NCAST_OK;
    encodes_packets_ = packets.frame_bytes % program_.block_bytes == 0;
    // Frames of less than a block contain the values as they are.
    if (encodes_packets_ || packets.frame_bytes < program_.block_bytes) return NCAST_OK;
    return fail(NCAST_UNSUPPORTED,
                "loops of the plan '%s' cut encoded packets into frames of %llu bytes; generated kernels support "
                "multiples of %u, and fewer bytes",
                plan_.name.c_str(), static_cast<unsigned long long>(packets.frame_bytes), program_.block_bytes);
  }

  // --- items in the order of the plan ---

  ncast_status add_rank(int rank) {
    const plan::Rank& from = plan_.ranks[static_cast<size_t>(rank)];
    RankProgram& to = program_.ranks.emplace_back();
    to.scratch_chunks = from.scratch_chunks;
    to.groups.resize(from.groups.size());
    number_points(from, to);
    for (uint32_t group = 0; group < from.groups.size(); ++group) {
      const std::vector<Step>& steps = from.groups[group].steps;
      for (uint32_t index = 0; index < steps.size(); ++index) {
        std::vector<Item>& items = to.groups[group].items;
        for (const plan::StepId& step : steps[index].after) items.push_back(point_item(Item::Kind::await, step));
        if (ncast_status status = add_step(rank, group, steps[index], items)) return status;
        if (points_.contains({group, index})) items.push_back(point_item(Item::Kind::publish, {group, index}));
      }
    }
    return NCAST_OK;
  }

  // Steps that other groups wait for, and barriers, of which each group's part is a step that the others wait for.
  void number_points(const plan::Rank& from, RankProgram& to) {
    points_.clear();
    const auto add = [&](const plan::StepId& step) {
      points_.try_emplace({step.group, step.step}, static_cast<uint32_t>(points_.size()));
    };
    for (const plan::Group& group : from.groups)
      for (const Step& step : group.steps)
        for (const plan::StepId& after : step.after) add(after);
    to.points = static_cast<uint32_t>(points_.size());
    barrier_counts_.assign(from.groups.size(), std::vector<uint32_t>(from.barriers.size()));
    barrier_points_.clear();
  }
  Item point_item(Item::Kind kind, const plan::StepId& step) const {
    Item item;
    item.kind = kind;
    item.point = points_.at({step.group, step.step});
    return item;
  }

  ncast_status add_step(int rank, uint32_t group, const Step& step, std::vector<Item>& items) {
    switch (step.kind) {
      case StepKind::copy:
      case StepKind::reduce: return add_transfer(rank, step, items);
      case StepKind::signal:
      case StepKind::wait:
        for (const uint32_t channel : step.channels) {
          Item item;
          item.kind = step.kind == StepKind::signal ? Item::Kind::signal : Item::Kind::wait;
          item.channel = channel;
          item.relaxed = step.relaxed;
          item.origin = step.origin;
          items.push_back(item);
          if (step.kind == StepKind::signal) signalling_.insert({channel, group});
        }
        return NCAST_OK;
      case StepKind::barrier: add_barrier(rank, group, step.barrier, items); return NCAST_OK;
      case StepKind::loop:  // a micro-batch is shorter than an iteration, or as good as one
        for (const Step& inner : step.body)
          if (ncast_status status = add_step(rank, group, inner, items)) return status;
        return NCAST_OK;
      case StepKind::flush:  // stores of a warp have left their source when the step that makes them ends
      case StepKind::sync: return NCAST_OK;
    }
    return NCAST_OK;
  }

  // The k-th time that a group reaches a barrier, it announces a point of its own and waits for those of the others.
  void add_barrier(int rank, uint32_t group, uint32_t barrier, std::vector<Item>& items) {
    const std::vector<uint32_t>& groups = plan_.ranks[static_cast<size_t>(rank)].barriers[barrier];
    RankProgram& of_rank = program_.ranks[static_cast<size_t>(rank)];
    const uint32_t time = barrier_counts_[group][barrier]++;
    const auto point_of = [&](uint32_t of) {
      const auto [found, is_new] = barrier_points_.try_emplace({barrier, time, of}, of_rank.points);
      if (is_new) ++of_rank.points;
      return found->second;
    };
    Item item;
    item.kind = Item::Kind::publish;
    item.point = point_of(group);
    items.push_back(item);
    item.kind = Item::Kind::await;
    for (const uint32_t other : groups) {
      if (other == group) continue;
      item.point = point_of(other);
      items.push_back(item);
    }
  }

  // A step of n chunks becomes n items.
  ncast_status add_transfer(int rank, const Step& step, std::vector<Item>& items) {
    for (uint32_t i = 0; i < step.count; ++i) {
      Item item;
      item.origin = step.origin;
      for (const Operand& operand : step.from)
        if (ncast_status status = add_places(rank, operand, i, item.from)) return status;
      for (const Operand& operand : step.to)
        if (ncast_status status = add_places(rank, operand, i, item.to)) return status;
      item.kind = item.from.size() > 1 ? Item::Kind::reduce : Item::Kind::copy;
      if (item.kind == Item::Kind::copy && item.from[0].coded && std::ranges::any_of(item.to, &Place::rounded))
        return fail(NCAST_UNSUPPORTED,
                    "a step of the plan '%s' encodes the values of a message again for a buffer of the rank",
                    plan_.name.c_str());
      if (item.kind == Item::Kind::reduce) program_.reduces = true;
      items.push_back(std::move(item));
    }
    return NCAST_OK;
  }
  ncast_status add_places(int rank, const Operand& operand, uint32_t i, std::vector<Place>& places) const {
    Place place;
    place.buffer = operand.buffer;
    place.chunk = operand.chunk + i;
    place.packets = operand.packets;
    place.coded = can_be_encoded(operand) && (!operand.packets || encodes_packets_) &&
                  codec::effective_codec(program_.dtype, operand.codec) != NCAST_CODEC_RAW;
    place.rounded = is_rounded(operand);
    if (place.packets && operand.place != plan::Place::message && operand.buffer != plan::Buffer::scratch)
      return fail(NCAST_UNSUPPORTED, "the plan '%s' has packets in %s; generated kernels support them in scratch",
                  plan_.name.c_str(), operand.buffer == plan::Buffer::input ? "input" : "output");
    const auto at_rank = [&](int other) {
      place.kind = other == rank ? Place::Kind::local : Place::Kind::remote;
      place.rank = other;
      places.push_back(place);
    };
    switch (operand.place) {
      case plan::Place::local: at_rank(rank); break;
      case plan::Place::remote: {
        const plan::Channel& reached = channel(operand.channel);
        at_rank(reached.from == rank ? reached.to : reached.from);
        break;
      }
      case plan::Place::message:
        place.kind = Place::Kind::message;
        place.message = operand.channel;  // until match_messages()
        places.push_back(place);
        break;
      case plan::Place::everywhere:
        for (const int other : channel(operand.channel).ranks) at_rank(other);
        break;
    }
    return NCAST_OK;
  }

  // The k-th send on a ring is the k-th receive.
  ncast_status match_messages() {
    std::map<uint32_t, std::vector<std::pair<ItemId, Place*>>> sends, receives;
    visit_items(program_, [&](const ItemId& id, Item& one) {
      for (Place& place : one.from)
        if (place.kind == Place::Kind::message) receives[place.message].push_back({id, &place});
      for (Place& place : one.to)
        if (place.kind == Place::Kind::message) sends[place.message].push_back({id, &place});
    });
    for (auto& [index, sent] : sends) {
      const auto& received = receives[index];
      if (sent.size() != received.size())
        return fail(NCAST_INVALID_ARGUMENT, "the plan '%s' sends %zu messages on channel %u and receives %zu",
                    plan_.name.c_str(), sent.size(), index, received.size());
      for (size_t i = 0; i < sent.size(); ++i) {
        if (sent[i].second->coded != received[i].second->coded)
          return fail(NCAST_INVALID_ARGUMENT, "the codecs of message %zu on channel %u differ in the plan '%s'", i,
                      index, plan_.name.c_str());
        sent[i].second->message = received[i].second->message = static_cast<uint32_t>(program_.messages.size());
        program_.messages.push_back({index, channel(index).from, channel(index).to, 0, 0, 0});
        ends_.push_back({sent[i].first, received[i].first});
      }
    }
    for (const auto& [index, received] : receives)
      if (!sends.contains(index))
        return fail(NCAST_INVALID_ARGUMENT, "the plan '%s' receives %zu messages on channel %u and sends none",
                    plan_.name.c_str(), received.size(), index);
    return NCAST_OK;
  }

  // Failures to receive packets are attributed to the rank that writes them.
  void find_packet_writers() {
    std::map<std::pair<int, uint32_t>, int> writers;  // by rank and chunk of its scratch
    const auto visit_packets = [&](std::vector<Place> Item::* places, auto visit) {
      visit_items(program_, [&](const ItemId& id, Item& one) {
        for (Place& place : one.*places)
          if (place.packets) visit(id.rank, place, std::pair{place.rank, place.chunk});
      });
    };
    visit_packets(&Item::to, [&](int rank, const Place&, const auto& where) { writers.try_emplace(where, rank); });
    visit_packets(&Item::from, [&](int rank, Place& place, const auto& where) {
      const auto found = writers.find(where);
      place.writer = found == writers.end() ? rank : found->second;
    });
  }

  void add_semaphore_words() {
    program_.semaphores.resize(plan_.channels.size());
    std::vector<uint32_t> words(plan_.ranks.size());
    for (uint32_t i = 0; i < plan_.channels.size(); ++i) {
      Semaphore& semaphore = program_.semaphores[i];
      const plan::Channel& of = channel(i);
      semaphore.from = of.from;
      semaphore.to = of.to;
      semaphore.initial = of.initial;
      for (const auto& [signalled, group] : signalling_)
        if (signalled == i) semaphore.signal_groups.push_back(group);
      if (semaphore.signal_groups.empty()) continue;
      semaphore.first_word = words[static_cast<size_t>(of.to)];
      words[static_cast<size_t>(of.to)] += static_cast<uint32_t>(semaphore.signal_groups.size());
    }
    visit_items(program_, [&](const ItemId&, const Item& one) {
      if (one.kind == Item::Kind::wait) program_.semaphores[one.channel].is_waited_for = true;
    });
  }

  void find_accesses() {
    visit_items(program_, [&](const ItemId&, const Item& one) {
      if (one.kind == Item::Kind::signal || one.kind == Item::Kind::wait) program_.accesses_peers = true;
      for (const auto* places : {&one.from, &one.to}) {
        for (const Place& place : *places) {
          if (place.kind == Place::Kind::message) continue;
          if (place.packets) program_.has_packets = program_.accesses_peers = true;
          if (place.kind != Place::Kind::remote) continue;
          program_.accesses_peers = true;
          if (place.buffer != plan::Buffer::scratch) program_.accesses_peer_buffers = true;
        }
      }
    });
  }

  const plan::Plan& plan_;
  Program& program_;
  bool encodes_packets_ = false;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> points_;                     // of the rank, by group and step
  std::vector<std::vector<uint32_t>> barrier_counts_;                            // of the rank, by group and barrier
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> barrier_points_;  // by barrier, time and group
  std::set<std::pair<uint32_t, uint32_t>> signalling_;                           // channels and groups
  std::vector<MessageEnds> ends_;                                                // of every message
};

}  // namespace

uint32_t Program::groups() const {
  size_t most = 0;
  for (const RankProgram& rank : ranks) most = std::max(most, rank.groups.size());
  return static_cast<uint32_t>(most);
}

ChunkRef Program::chunk_of(const Place& place) const {
  switch (place.buffer) {
    case plan::Buffer::input: return ChunkRef::of(ChunkRef::input, place.chunk / chunks, place.chunk % chunks);
    case plan::Buffer::output: return ChunkRef::of(ChunkRef::output, place.chunk / chunks, place.chunk % chunks);
    default: return ChunkRef::of(ChunkRef::scratch, 0, place.chunk);
  }
}

Place::Location location_in_place(const plan::Plan& plan, int rank, const Place& place) {
  const uint32_t inputs = plan.input_chunks(rank), outputs = plan.output_chunks(rank);
  const uint32_t piece = inputs == outputs ? 0 : static_cast<uint32_t>(rank) * plan.chunks;
  if (place.buffer == plan::Buffer::input && inputs <= outputs) return {plan::Buffer::output, place.chunk + piece};
  if (place.buffer == plan::Buffer::output && outputs < inputs) return {plan::Buffer::input, place.chunk + piece};
  return place.location();
}

ncast_status make_program(const plan::Plan& plan, ncast_dtype dtype, ncast_redop op, uint32_t max_slots,
                          Program* program) {
  *program = {};
  program->operation = plan.operation;
  program->chunks = plan.chunks;
  program->in_place = plan.in_place;
  program->dtype = dtype;
  program->op = operation::reduces(plan.operation) ? op : NCAST_SUM;
  program->scratch_copies = plan.scratch_copies;
  return Builder(plan, *program).build(max_slots);
}

}  // namespace narrowcast::executor::cuda::generated
