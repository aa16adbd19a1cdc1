#include "executor/cuda/generated/group_code.h"

#include <algorithm>
#include <set>

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
};

class GroupEmitter {
 public:
  GroupEmitter(const Program& program, int rank, uint32_t group, const Ends& ends)
      : program_(program),
        rank_(rank),
        group_(group),
        ends_(ends),
        items_(program.ranks[static_cast<size_t>(rank)].groups[group].items) {}

  GroupCode emit() && {
    for (const Item& item : items_) add(emitted(item));
    link();
    merge();
    code_.items.assign(emitted_.begin(), emitted_.end());
    return std::move(code_);
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
  uint32_t chunk(const Place& place) const {
    switch (place.buffer) {
      case plan::Buffer::input:
        return ChunkRef::of(ChunkRef::input, place.chunk / program_.chunks, place.chunk % program_.chunks).word;
      case plan::Buffer::output:
        return ChunkRef::of(ChunkRef::output, place.chunk / program_.chunks, place.chunk % program_.chunks).word;
      default: return ChunkRef::of(ChunkRef::scratch, 0, place.chunk).word;
    }
  }
  static const char* boolean(bool value) { return value ? "true" : "false"; }

  // Adds words to the item; returns the index of the first.
  static size_t push(Emitted& to, std::initializer_list<uint32_t> words) {
    const size_t first = to.words.size();
    to.words.insert(to.words.end(), words);
    return first;
  }

  Emitted emitted(const Item& item) {
    Emitted to;
    to.stage = item.stage;
    to.words = {0, 0};  // the head
    const Semaphore* const semaphore = program_.semaphores.empty() ? nullptr : &program_.semaphores[item.channel];
    switch (item.kind) {
      case Item::Kind::publish:
        to.is_transparent = true;
        to.lines.push_back(text("w.publish(q[%zu]);", push(to, {item.point})));
        return to;
      case Item::Kind::await:
        to.lines.push_back(text("if (!w.await(q[%zu])) return false;", push(to, {item.point})));
        return to;
      case Item::Kind::signal: {
        to.is_transparent = true;
        const auto position = static_cast<uint32_t>(std::ranges::find(semaphore->signal_groups, group_) -
                                                    semaphore->signal_groups.begin());
        const size_t at = push(to, {static_cast<uint32_t>(semaphore->to), semaphore->first_word + position,
                                    sent_signal(item.channel) + position});
        to.lines.push_back(
            text("w.template signal<%s>(q[%zu], q[%zu], q[%zu]);", boolean(item.relaxed), at, at + 1, at + 2));
        return to;
      }
      case Item::Kind::wait: {
        const size_t at = push(
            to, {static_cast<uint32_t>(semaphore->from), semaphore->first_word,
                 static_cast<uint32_t>(semaphore->signal_groups.size()), semaphore->initial, waited(item.channel)});
        to.lines.push_back(text("if (!w.wait_for_signal(q[%zu], q[%zu], q[%zu], q[%zu], q[%zu])) return false;", at,
                                at + 1, at + 2, at + 3, at + 4));
        return to;
      }
      default: break;
    }
    to.settles = item.settles;
    bool reads_packets = false;
    for (const Place& place : item.from) {
      reads_packets = reads_packets || place.packets;
      if (!place.packets || place.coded) continue;
      const size_t at = push_packets(to, place);
      to.lines.push_back(text("if (!w.wait_for_packets(q[%zu], q[%zu], q[%zu])) return false;", at, at + 1, at + 2));
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

  // Where packets that an item reads are.
  size_t push_packets(Emitted& to, const Place& place) const {
    return push(to, {static_cast<uint32_t>(place.rank), chunk(place), static_cast<uint32_t>(place.writer)});
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
      const size_t at = push_packets(to, from);
      to.lines.push_back(text("if (!w.template receive_packets<%s>(q[%zu], q[%zu], q[%zu])) return false;",
                              boolean(decodes(item)), at, at + 1, at + 2));
      add_destinations(item, to, &from);
      return;
    }
    switch (from.kind) {
      case Place::Kind::local:
        to.first = ItemHead::chunk;
        to.first_word = chunk(from);
        to.lines.push_back(text("w.load(q[%zu]);", push(to, {chunk(from)})));
        add_destinations(item, to, nullptr);
        return;
      case Place::Kind::remote: {
        const size_t at = push(to, {static_cast<uint32_t>(from.rank), chunk(from)});
        to.lines.push_back(text("if (!w.load_remote(q[%zu], q[%zu])) return false;", at, at + 1));
        if (from.is_get()) to.lines.emplace_back("w.count_gets(1);");
        add_destinations(item, to, nullptr);
        return;
      }
      case Place::Kind::message: {
        to.first = ItemHead::message;
        to.first_word = 1u << receiving_end(from);
        to.lines.push_back(text("if (!w.template receive<%s, %s>(q[%zu])) return false;", boolean(from.coded),
                                boolean(decodes(item)), push(to, {receiving_end(from)})));
        to.is_plain_receive = item.to.size() == 1 && item.to[0].kind == Place::Kind::local && !item.to[0].packets;
        to.coded = from.coded;
        add_destinations(item, to, &from);
        return;
      }
    }
  }

  void add_reduction(const Item& item, Emitted& to) {
    std::vector<Place> sources = item.from;
    // As in reducing_warp.cuh: nothing waits for the own values, and reduced() commutes.
    if (sources[0].kind == Place::Kind::local && sources[1].kind == Place::Kind::message)
      std::swap(sources[0], sources[1]);
    const size_t first = to.words.size();
    bool coded = false, packets = false;
    for (const Place& from : sources) {
      coded = coded || from.coded;
      if (from.packets && from.coded) {
        packets = true;
        const auto source = SourceRef::of(SourceRef::encoded_packets, static_cast<uint32_t>(from.rank), chunk(from),
                                          static_cast<uint32_t>(from.writer));
        push(to, {source.kind_and_number, source.chunk});
        continue;
      }
      SourceRef source{};
      switch (from.kind) {
        case Place::Kind::local:
          source = SourceRef::of(SourceRef::local, 0, chunk(from));
          if (to.first == ItemHead::nothing) {
            to.first = ItemHead::chunk;
            to.first_word = chunk(from);
          }
          break;
        case Place::Kind::remote:
          source = SourceRef::of(SourceRef::remote, static_cast<uint32_t>(from.rank), chunk(from));
          break;
        case Place::Kind::message: source = SourceRef::of(SourceRef::message, receiving_end(from), 0); break;
      }
      push(to, {source.kind_and_number, source.chunk});
    }
    // Only averages do anything else at the end.
    const bool finishes = item.finishes && program_.op == NCAST_AVG;
    to.lines.push_back(text("if (!w.template reduce<%s, %s%s>(q + %zu, %zu)) return false;", boolean(coded),
                            boolean(finishes), packets ? ", true" : "", first, sources.size()));
    const auto gets = std::ranges::count_if(
        sources, [](const Place& from) { return from.is_get() && !(from.packets && from.coded); });
    if (gets != 0) to.lines.push_back(text("w.count_gets(%td);", gets));
    add_destinations(item, to, nullptr);
  }

  // from: the message or the encoded packets that the item copies, if it does.
  void add_destinations(const Item& item, Emitted& to, const Place* from) {
    const bool stores_payload =
        std::ranges::any_of(item.to, [](const Place& place) { return place.packets && place.coded; });
    if (stores_payload)
      to.lines.push_back(
          text("const auto payload = w.%s();", from != nullptr && from->coded ? "received_payload" : "encoded_values"));
    // Rings' slots first when a message is passed on, because another rank waits for it.
    const auto add_sends = [&] {
      for (const bool coded : {false, true}) {
        const bool forwards = from != nullptr && from->coded == coded;
        const bool is_encoded = coded && stores_payload;
        const char* const function = is_encoded ? "send_payload"
                                     : forwards ? "forward"
                                     : coded    ? "send_encoded"
                                                : "send";
        EndMaskList masks;
        for (const Place& place : item.to)
          if (place.kind == Place::Kind::message && place.coded == coded) masks.add(sending_end(place));
        for (const uint32_t mask : masks.masks)
          to.lines.push_back(
              text("if (!w.%s(q[%zu]%s)) return false;", function, push(to, {mask}), is_encoded ? ", payload" : ""));
      }
    };
    if (from != nullptr) add_sends();
    for (const Place& place : item.to) {
      if (place.kind == Place::Kind::message) continue;
      if (place.packets && place.coded) {
        const size_t at = push(to, {static_cast<uint32_t>(place.rank), chunk(place)});
        to.lines.push_back(text("w.store_packets(q[%zu], q[%zu], payload);", at, at + 1));
        continue;
      }
      if (place.kind == Place::Kind::local) {
        to.lines.push_back(text("w.store(q[%zu]);", push(to, {chunk(place)})));
      } else {
        const size_t at = push(to, {static_cast<uint32_t>(place.rank), chunk(place)});
        to.lines.push_back(text("if (!w.store_remote(q[%zu], q[%zu])) return false;", at, at + 1));
      }
      if (place.packets) {
        const size_t at = push(to, {static_cast<uint32_t>(place.rank), chunk(place)});
        to.lines.push_back(text("w.raise_packets(q[%zu], q[%zu]);", at, at + 1));
      }
    }
    if (from == nullptr) add_sends();
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
        last.words.insert(last.words.end(), one.words.begin() + ItemHead::words, one.words.end());
        last.first_word |= one.first_word;
        last.lines = {text("if (!w.template receive_any<%s>(q + %u, %zu)) return false;", boolean(one.coded),
                           ItemHead::words, (last.words.size() - ItemHead::words) / 2)};
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
      emitted_[i].words[0] = ItemHead::of(emitted_[i].stage, to.first, next_stage, emitted_[i].settles).word;
      emitted_[i].words[1] = to.first_word;
    }
  }

  // Items with the same text, one after another, become a loop.
  void merge() {
    for (size_t i = 0; i < emitted_.size();) {
      size_t end = i + 1;
      while (end < emitted_.size() && emitted_[end].lines == emitted_[i].lines) ++end;
      const size_t first = code_.words.size(), width = emitted_[i].words.size();
      for (size_t one = i; one < end; ++one)
        code_.words.insert(code_.words.end(), emitted_[one].words.begin(), emitted_[one].words.end());
      if (end == i + 1) {
        code_.body += text("    if (const uint32_t* const q = p + %zu; w.begin_item(q)) {\n", first);
      } else {
        code_.body +=
            text("    for (const uint32_t* q = p + %zu; q != p + %zu; q += %zu) {\n", first, code_.words.size(), width);
        code_.body += "      if (!w.begin_item(q)) continue;\n";
      }
      for (const std::string& line : emitted_[i].lines) code_.body += "      " + line + "\n";
      code_.body += "    }\n";
      ++code_.loops;
      i = end;
    }
  }

  const Program& program_;
  int rank_;
  uint32_t group_;
  const Ends& ends_;
  const std::vector<Item>& items_;
  std::vector<Emitted> emitted_;
  GroupCode code_;
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

GroupCode code_of_group(const Program& program, int rank, uint32_t group, const Ends& ends) {
  return GroupEmitter(program, rank, group, ends).emit();
}

}  // namespace narrowcast::executor::cuda::generated
