#include "executor/cuda/generated/group_code.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "codec/codec.h"
#include "executor/cuda/generated/text.h"

namespace narrowcast::executor::cuda::generated {
namespace {

// An item while the code of its group is written.
struct Emitted : ItemCode {
  // What the warp loads first, if that may begin during the previous item.
  ItemHead::Next first = ItemHead::nothing;
  uint32_t first_word = 0;      // the chunk or the receiving end
  bool is_transparent = false;  // the previous item may begin loads of the next one
  int stage = 0;
  bool settles = false;
  // Receives one message and stores it in one chunk: several of these can be received in any order.
  bool is_plain_receive = false;
  bool coded = false;
  std::vector<uint32_t> received;  // pairs of an end and a chunk
};

constexpr const char* prefetch = "w.prefetch_next();";

class GroupEmitter {
 public:
  GroupEmitter(const Program& program, int rank, uint32_t group, const Ends& ends)
      : program_(program),
        rank_(rank),
        group_(group),
        ends_(ends),
        items_(program.ranks[static_cast<size_t>(rank)].groups[group].items) {}

  std::vector<ItemCode> emit() && {
    for (const Item& item : items_) add(emitted(item));
    link();
    return {std::make_move_iterator(emitted_.begin()), std::make_move_iterator(emitted_.end())};
  }

 private:
  const Message& message(const Place& place) const { return program_.messages[place.message]; }
  static uint32_t position(const std::vector<std::pair<int, uint32_t>>& ends, int peer, uint32_t ring) {
    return static_cast<uint32_t>(std::ranges::find(ends, std::pair{peer, ring}) - ends.begin());
  }
  uint32_t sending_end(const Place& place) const {
    return position(ends_.sending, message(place).to, message(place).ring);
  }
  uint32_t receiving_end(const Place& place) const {
    return position(ends_.receiving, message(place).from, message(place).ring);
  }
  uint32_t chunk(const Place& place) const { return program_.chunk_of(place).word; }
  // Values of this rank, not a payload.
  static bool is_values(const Place& place) {
    return place.kind == Place::Kind::local && !(place.packets && place.coded);
  }

  Emitted emitted(const Item& item) {
    Emitted to;
    to.stage = item.stage;
    const Semaphore* const semaphore = program_.semaphores.empty() ? nullptr : &program_.semaphores[item.channel];
    switch (item.kind) {
      case Item::Kind::publish:
        to.is_transparent = true;
        to.add("w.publish(q[0]);", {item.point});
        return to;
      case Item::Kind::await: to.add("if (!w.await(q[0])) return false;", {item.point}); return to;
      case Item::Kind::signal: {
        to.is_transparent = true;
        const auto position = static_cast<uint32_t>(std::ranges::find(semaphore->signal_groups, group_) -
                                                    semaphore->signal_groups.begin());
        to.add(text("w.template signal<%s>(q[0], q[1], q[2]);", boolean(item.relaxed)),
               {static_cast<uint32_t>(semaphore->to), semaphore->first_word + position,
                sent_signal(item.channel) + position});
        return to;
      }
      case Item::Kind::wait:
        to.add("if (!w.wait_for_signal(q[0], q[1], q[2], q[3], q[4])) return false;",
               {static_cast<uint32_t>(semaphore->from), semaphore->first_word,
                static_cast<uint32_t>(semaphore->signal_groups.size()), semaphore->initial, waited(item.channel)});
        return to;
      default: break;
    }
    to.settles = item.settles;
    bool reads_packets = false;
    for (const Place& place : item.from) {
      reads_packets = reads_packets || place.packets;
      if (!place.packets || place.coded) continue;
      add_packets(to, "if (!w.wait_for_packets(q[0], q[1], q[2])) return false;", place);
    }
    const bool can_begin = !reads_packets && !item.settles;
    if (item.kind == Item::Kind::reduce) {
      add_reduction(item, to);
    } else {
      add_source(item, to);
    }
    if (!can_begin) to.first = ItemHead::nothing;
    to.is_plain_receive = to.is_plain_receive && can_begin;
    return to;
  }

  // A line about packets that an item reads.
  void add_packets(Emitted& to, const char* line, const Place& place) const {
    to.add(line, {static_cast<uint32_t>(place.rank), chunk(place), static_cast<uint32_t>(place.writer)});
  }

  // The payload that an item copies is passed on as it is to destinations with the same codec; all others need its
  // values.
  static bool decodes(const Item& item) {
    return !std::ranges::all_of(item.to, [&](const Place& place) {
      return (place.kind == Place::Kind::message || place.coded) && place.coded == item.from[0].coded;
    });
  }

  void add_source(const Item& item, Emitted& to) {
    const Place& from = item.from[0];
    if (from.packets && from.coded) {
      add_packets(to, "if (!w.receive_packets(q[0], q[1], q[2])) return false;", from);
      to.add(prefetch);
      if (decodes(item)) to.add("if (!w.open_packets(q[0])) return false;", {static_cast<uint32_t>(from.writer)});
      add_destinations(item, to, &from);
      return;
    }
    switch (from.kind) {
      case Place::Kind::local:
        start_with(from, to);
        to.add("w.load();");
        to.add(prefetch);
        add_destinations(item, to, nullptr);
        return;
      case Place::Kind::remote:
        to.add("if (!w.load_remote(q[0], q[1])) return false;", {static_cast<uint32_t>(from.rank), chunk(from)});
        to.add(prefetch);
        if (from.is_get()) to.add("w.count_gets(q[0]);", {1});
        add_destinations(item, to, nullptr);
        return;
      case Place::Kind::message:
        to.first = ItemHead::message;
        to.first_word = 1u << receiving_end(from);
        add_receive(from, 1, to);
        to.add(prefetch);
        if (from.coded && decodes(item)) to.add("if (!w.open()) return false;");
        to.is_plain_receive = item.to.size() == 1 && item.to[0].kind == Place::Kind::local && !item.to[0].packets;
        to.coded = from.coded;
        if (to.is_plain_receive) to.received = {receiving_end(from), chunk(item.to[0])};
        add_destinations(item, to, &from);
        return;
    }
  }
  // other: whether to receive into the other buffer. A word, so that items have the same line.
  void add_receive(const Place& from, uint32_t other, Emitted& to) const {
    to.add("if (!w.receive(q[0], q[1])) return false;", {receiving_end(from), other});
  }
  // Starts to load the chunk that the item loads first.
  void start_with(const Place& from, Emitted& to) const {
    to.first = ItemHead::chunk;
    to.first_word = chunk(from);
    to.add("w.start(q[0]);", {to.first_word});
  }

  void add_reduction(const Item& item, Emitted& to) {
    std::vector<Place> sources = item.from;
    // As in reducing_warp.cuh: nothing waits for the own values, and reduced() commutes.
    if (sources[0].kind == Place::Kind::local && sources[1].kind == Place::Kind::message)
      std::swap(sources[0], sources[1]);
    // Only averages do anything else at the end.
    const bool finishes = item.finishes && program_.op == NCAST_AVG;
    if (sources.size() == 2 && sources[0].kind == Place::Kind::message && is_values(sources[1])) {
      start_with(sources[1], to);
      add_receive(sources[0], 0, to);  // the chunk is in the other buffer
      to.add(text("if (!w.template reduce_with_message<%s, %s>()) return false;", boolean(sources[0].coded),
                  boolean(finishes)));
      to.add(prefetch);
      add_destinations(item, to, nullptr);
      return;
    }
    Line line{"", {0}, true};
    const auto push = [&](SourceRef source) {
      ++line.words[0];
      line.words.insert(line.words.end(), {source.kind_and_number, source.chunk});
    };
    bool coded = false;
    for (const Place& from : sources) {
      coded = coded || from.coded;
      if (from.packets && from.coded) {
        push(SourceRef::of(SourceRef::encoded_packets, static_cast<uint32_t>(from.rank), chunk(from),
                           static_cast<uint32_t>(from.writer)));
        continue;
      }
      SourceRef source{};
      switch (from.kind) {
        case Place::Kind::local:
          source = SourceRef::of(SourceRef::local, 0, chunk(from));
          if (to.first == ItemHead::nothing) start_with(from, to);
          break;
        case Place::Kind::remote:
          source = SourceRef::of(SourceRef::remote, static_cast<uint32_t>(from.rank), chunk(from));
          break;
        case Place::Kind::message: source = SourceRef::of(SourceRef::message, receiving_end(from), 0); break;
      }
      push(source);
    }
    line.text = text("if (!w.template reduce<%s>(sums, q + 1, count)) return false;", boolean(coded));
    to.lines.push_back(std::move(line));
    to.add(prefetch);
    to.add(text("w.template finish<%s>(sums);", boolean(finishes)));
    const auto gets = std::ranges::count_if(
        sources, [](const Place& from) { return from.is_get() && !(from.packets && from.coded); });
    if (gets != 0) to.add("w.count_gets(q[0]);", {static_cast<uint32_t>(gets)});
    add_destinations(item, to, nullptr);
  }

  // from: the message or the encoded packets that the item copies, if it does. Then rings' slots are first, because
  // another rank waits for them. Otherwise the stores to the own memory are, which are asynchronous.
  void add_destinations(const Item& item, Emitted& to, const Place* from) {
    const auto is_stored = [](const Place& place) {
      return place.kind == Place::Kind::local && !place.packets && !place.rounded;
    };
    const auto add_stores = [&] {
      for (const Place& place : item.to)
        if (is_stored(place)) to.lines.push_back({.text = "w.store(q[0]);", .words = {chunk(place)}, .is_short = true});
    };
    if (from == nullptr) add_stores();
    if (std::ranges::any_of(item.to, [](const Place& place) { return place.coded || place.rounded; }))
      add_payload(item, from != nullptr && from->coded, to);
    const auto add_sends = [&] {
      for (const bool coded : {false, true}) {
        EndMaskList masks;
        for (const Place& place : item.to)
          if (place.kind == Place::Kind::message && place.coded == coded) masks.add(sending_end(place));
        for (const uint32_t mask : masks.masks)
          to.add(coded ? "if (!w.send_payload(q[0], payload)) return false;" : "if (!w.send(q[0])) return false;",
                 {mask});
      }
    };
    if (from != nullptr) {
      add_sends();
      add_stores();
    }
    for (const Place& place : item.to) {
      if (place.kind == Place::Kind::message || is_stored(place) || place.rounded) continue;
      const auto rank = static_cast<uint32_t>(place.rank);
      if (place.packets && place.coded) {
        to.add("w.store_packets(q[0], q[1], payload);", {rank, chunk(place)});
        continue;
      }
      if (place.kind == Place::Kind::local) {
        to.add("w.store(q[0]);", {chunk(place)});
      } else {
        to.add("if (!w.store_remote(q[0], q[1])) return false;", {rank, chunk(place)});
      }
      if (place.packets) to.add("w.raise_packets(q[0], q[1]);", {rank, chunk(place)});
    }
    if (from == nullptr) add_sends();
    for (const Place& place : item.to)
      if (place.rounded) to.add("w.store_decoded(q[0], payload);", {chunk(place)});
  }

  // The context of encoded values is that of the host (GroupRun::context_of()). Exact codecs use none.
  void add_payload(const Item& item, bool is_received, Emitted& to) {
    if (is_received) return to.add("payload = w.received_payload();");
    if (codec::is_exact(program_.codec)) return to.add("payload = w.encoded_values();");
    for (const auto* const places : {&item.from, &item.to}) {
      for (const Place& place : *places) {
        if (place.kind != Place::Kind::local || place.buffer == plan::Buffer::scratch) continue;
        to.add("payload = w.encoded_values(q[0], q[1]);", {chunk(place), item.kind == Item::Kind::reduce ? 1u : 0u});
        return;
      }
    }
    to.add("payload = w.encoded_values(q[0], q[1]);", {0, 2 + group_});
  }

  // Masks of ends for one put each: an end once, and no more ends than a signal queue holds.
  struct EndMaskList {
    std::vector<uint32_t> masks;
    void add(uint32_t end) {
      for (uint32_t& mask : masks) {
        if ((mask >> end & 1) != 0 || static_cast<uint32_t>(__builtin_popcount(mask)) == channel::max_gpu_ranks)
          continue;
        mask |= 1u << end;
        return;
      }
      masks.push_back(1u << end);
    }
  };

  uint32_t sent_signal(uint32_t channel) const {
    uint32_t number = 0;
    for (uint32_t i = 0; i < channel; ++i)
      if (program_.semaphores[i].from == rank_)
        number += static_cast<uint32_t>(program_.semaphores[i].signal_groups.size());
    return number;
  }
  uint32_t waited(uint32_t channel) const {
    uint32_t number = 0;
    for (uint32_t i = 0; i < channel; ++i) {
      const Semaphore& semaphore = program_.semaphores[i];
      if (semaphore.to == rank_ && semaphore.is_waited_for) ++number;
    }
    return number;
  }

  // Adds an item. Consecutive messages from different ends that are stored in one chunk each become one item.
  void add(Emitted one) {
    if (one.is_plain_receive && !emitted_.empty()) {
      Emitted& last = emitted_.back();
      const bool is_of_other_end = (last.first_word & one.first_word) == 0;
      if (last.is_plain_receive && last.stage == one.stage && last.coded == one.coded && is_of_other_end) {
        last.first_word |= one.first_word;
        last.received.insert(last.received.end(), one.received.begin(), one.received.end());
        Line line{text("if (!w.template receive_any<%s>(q + 1, count)) return false;", boolean(one.coded)),
                  {static_cast<uint32_t>(last.received.size() / 2)},
                  true};
        line.words.insert(line.words.end(), last.received.begin(), last.received.end());
        last.lines = {std::move(line)};
        return;
      }
    }
    emitted_.push_back(std::move(one));
  }

  // Writes the heads of the items: what each loads ahead for the next.
  void link() {
    for (size_t i = 0; i < emitted_.size(); ++i) {
      size_t next = i;
      bool wraps = false;
      do {
        wraps = wraps || next + 1 == emitted_.size();
        next = (next + 1) % emitted_.size();
      } while (emitted_[next].is_transparent && next != i);
      const Emitted& to = emitted_[next];
      const int next_stage = to.stage - (wraps ? 1 : 0);
      emitted_[i].head[0] = ItemHead::of(emitted_[i].stage, to.first, next_stage, emitted_[i].settles).word;
      emitted_[i].head[1] = to.first_word;
    }
  }

  const Program& program_;
  int rank_;
  uint32_t group_;
  const Ends& ends_;
  const std::vector<Item>& items_;
  std::vector<Emitted> emitted_;
};

}  // namespace

Ends find_ends(const Program& program, int rank, uint32_t group) {
  std::set<std::pair<uint32_t, uint32_t>> sending, receiving;  // ring and distance
  const auto ranks = static_cast<uint32_t>(program.rank_count());
  const auto distance = [&](int peer) { return (static_cast<uint32_t>(peer - rank) + ranks) % ranks; };
  const auto at = [&](uint32_t steps) { return static_cast<int>((static_cast<uint32_t>(rank) + steps) % ranks); };
  for (const Item& item : program.ranks[static_cast<size_t>(rank)].groups[group].items) {
    for (const Place& place : item.to) {
      if (place.kind != Place::Kind::message) continue;
      const Message& message = program.messages[place.message];
      sending.insert({message.ring, distance(message.to)});
    }
    for (const Place& place : item.from) {
      if (place.kind != Place::Kind::message) continue;
      const Message& message = program.messages[place.message];
      receiving.insert({message.ring, distance(message.from)});
    }
  }
  Ends ends;
  ends.sending.reserve(sending.size());
  ends.receiving.reserve(receiving.size());
  for (const auto& [ring, steps] : sending) ends.sending.emplace_back(at(steps), ring);
  for (const auto& [ring, steps] : receiving) ends.receiving.emplace_back(at(steps), ring);
  return ends;
}

std::vector<ItemCode> code_of_group(const Program& program, int rank, uint32_t group, const Ends& ends) {
  return GroupEmitter(program, rank, group, ends).emit();
}

}  // namespace narrowcast::executor::cuda::generated
