#include "executor/cuda/generated/strand_code.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "executor/cuda/generated/text.h"

namespace narrowcast::executor::cuda::generated {
namespace {

using Location = Place::Location;

class StrandEmitter {
 public:
  StrandEmitter(const Program& program, int rank, const std::vector<uint32_t>& numbers, bool in_phases)
      : program_(program),
        rank_(rank),
        numbers_(numbers),
        in_phases_(in_phases),
        fail_(in_phases ? "return false" : "return") {}

  StrandCode emit_straight(const std::vector<const Item*>& items) && {
    find_last_writes(items);
    // Loads first, because the compiler does not move them above stores.
    load_all(items);
    std::string sends, rest;
    size_t i = 0;
    for (; i < items.size() && !has_message(*items[i]); ++i) add(*items[i], sends, rest);
    while (i < items.size()) i = add_received(items, i, rest);
    std::string body = declarations_;
    if (!loads_.empty() || !sends.empty())
      body += "  if (has_unit) {\n" + indented(loads_) + "    w.begin();\n" + indented(sends) + "  }\n";
    add_phase(body + "  if (!w.advance() || !has_unit) return;\n" + rest);
    return {std::move(phases_), std::move(words_)};
  }

  std::optional<StrandCode> emit_phases(const std::vector<const Item*>& items, size_t phases) && {
    for (size_t phase = 0; phase < phases; ++phase) {
      std::vector<const Item*> now, later;
      for (const Item* item : items) {
        if (item->depth == static_cast<int>(phase)) now.push_back(item);
        if (item->depth > static_cast<int>(phase)) later.push_back(item);
      }
      find_last_writes(items);
      for (const Item* item : later)
        for (const Place& place : item->from)
          if (place.kind == Place::Kind::local) keep_for_later(now, place);
      phase_ = phase;
      load_all(now);
      std::string code;
      if (phase == 0) {
        std::string stores;
        code = "  w.begin();\n";
        for (const Item* item : now) add(*item, code, stores);
        code += stores;
      } else {
        for (size_t i = 0; i < now.size();) i = add_received(now, i, code);
      }
      add_phase(now.empty() ? "" : declarations_ + loads_ + code);
      if (uses_scratch_) return std::nullopt;
    }
    return StrandCode{std::move(phases_), std::move(words_)};
  }

 private:
  void add_phase(std::string code) {
    phases_.push_back({std::move(code), words_.size() - first_word_, static_cast<size_t>(arrays_)});
    first_word_ = words_.size();
    units_ = arrays_ = 0;
    values_.clear();
    declarations_.clear();
    loads_.clear();
  }
  static bool has_message(const Item& item) {
    return std::ranges::any_of(item.from, [](const Place& place) { return place.kind == Place::Kind::message; });
  }
  static bool sends(const Item& item) {
    return std::ranges::any_of(item.to, [](const Place& place) { return place.kind == Place::Kind::message; });
  }
  static bool writes(const Item& item, const Place& place) {
    return std::ranges::any_of(
        item.to, [&](const Place& to) { return to.kind == Place::Kind::local && to.location() == place.location(); });
  }

  std::string declare() {
    std::string name = "u" + std::to_string(units_++);
    declarations_ += "  Unit " + name + ";\n";
    return name;
  }
  std::string word(PacketWord value) {
    words_.push_back(value);
    return text("q[%zu]", words_.size() - 1 - first_word_);
  }
  std::string chunk(const Place& place) {
    const uint32_t ref = program_.chunk_of(place).word;
    const std::string offset = word({PacketWord::offset, ref});
    return offset + ", " + word({PacketWord::bytes, ref});
  }

  // Only the last write to a location is stored, and in phases also the last one before a later phase reads it.
  void find_last_writes(const std::vector<const Item*>& items) {
    for (const Item* item : items)
      for (const Place& place : item->to)
        if (place.kind == Place::Kind::local) stored_[place.location()] = {item};
  }
  void keep_for_later(const std::vector<const Item*>& items, const Place& place) {
    for (auto item = items.rbegin(); item != items.rend(); ++item) {
      if (!writes(**item, place)) continue;
      stored_[place.location()].insert(*item);
      return;
    }
  }
  void load_all(const std::vector<const Item*>& items) {
    for (size_t i = 0; i < items.size(); ++i)
      for (const Place& place : items[i]->from)
        if (place.kind == Place::Kind::local &&
            std::none_of(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(i),
                         [&](const Item* item) { return writes(*item, place); }))
          load(place);
  }
  void load(const Place& place) {
    if (values_.contains(place.location())) return;
    if (place.buffer == plan::Buffer::scratch) uses_scratch_ = true;
    const std::string name = declare();
    const char* const buffer = place.buffer == plan::Buffer::input ? "input" : "output";
    loads_ += text("  %s = w.template load<ChunkRef::%s>(", name.c_str(), buffer) + chunk(place) + ");\n";
    values_[place.location()] = name;
  }

  // Receives what the item needs together with what the following items need, if they receive messages of the same
  // number from other ranks and the items before do not send. Then adds these items. Returns the first one that is
  // left.
  size_t add_received(const std::vector<const Item*>& items, size_t first, std::string& out) {
    std::vector<Place> messages;
    size_t end = first;
    for (; end < items.size(); ++end) {
      std::vector<Place> all = messages;
      for (const Place& place : items[end]->from)
        if (place.kind == Place::Kind::message) all.push_back(place);
      if (!can_receive_together(all)) break;
      messages = std::move(all);
      if (sends(*items[end])) {
        ++end;
        break;
      }
    }
    if (end == first) {  // one after another
      for (const Place& place : items[first]->from)
        if (place.kind == Place::Kind::message) receive({place}, out);
      add(*items[first], out, out);
      return first + 1;
    }
    if (!messages.empty()) receive(messages, out);
    std::vector<const Item*> received(items.begin() + static_cast<std::ptrdiff_t>(first),
                                      items.begin() + static_cast<std::ptrdiff_t>(end));
    // The plan's order may depend on the rank, and with it the code.
    std::set<Location> stored;
    if (std::ranges::all_of(received, [&](const Item* item) {
          return is_plain_receive(item) && stored.insert(item->to[0].location()).second;
        }))
      std::ranges::sort(received, {}, [&](const Item* item) { return program_.messages[item->from[0].message].from; });
    for (const Item* item : received) add(*item, out, out);
    return end;
  }
  // Stores a message in one chunk of the output.
  static bool is_plain_receive(const Item* item) {
    return item->kind == Item::Kind::copy && item->from[0].kind == Place::Kind::message && item->to.size() == 1 &&
           item->to[0].kind == Place::Kind::local && item->to[0].buffer == plan::Buffer::output;
  }
  bool can_receive_together(const std::vector<Place>& messages) const {
    uint32_t ranks = 0;
    for (const Place& place : messages) {
      const uint32_t rank = 1u << program_.messages[place.message].from;
      if ((ranks & rank) != 0 || numbers_[place.message] != numbers_[messages[0].message]) return false;
      ranks |= rank;
    }
    return true;
  }
  // The number of a message, in phases relative to that of the phase, which it often grows with.
  std::string number_of(const Place& place) const {
    const uint32_t number = numbers_[place.message];
    if (!in_phases_) return std::to_string(number);
    const auto more = static_cast<int64_t>(number) - static_cast<int64_t>(phase_);
    return more == 0 ? "phase" : text("phase %c %d", more < 0 ? '-' : '+', static_cast<int>(std::abs(more)));
  }
  void receive(const std::vector<Place>& messages, std::string& out) {
    const auto from = [&](const Place& place) { return program_.messages[place.message].from; };
    const std::string number = number_of(messages[0]);
    const std::string name = "r" + std::to_string(arrays_++);
    if (messages.size() == 1) {
      const std::string source = word({PacketWord::number, source_of(from(messages[0]))});
      out +=
          "  Unit " + name + ";\n  if (!w.receive_one(" + source + ", " + number + ", " + name + ")) " + fail_ + ";\n";
      received_[messages[0].message] = name;
      return;
    }
    uint32_t mask = 0;
    for (const Place& place : messages) {
      mask |= 1u << source_of(from(place));
      received_[place.message] = text("%s[%u]", name.c_str(), source_of(from(place)));
    }
    out += text("  Unit %s[%d];\n  if (!w.receive(0x%x, ", name.c_str(), program_.rank_count() - 1, mask) + number +
           ", " + name + ")) " + fail_ + ";\n";
  }
  // Sources are the other ranks, numbered without a gap.
  uint32_t source_of(int from) const { return static_cast<uint32_t>(from - (from > rank_ ? 1 : 0)); }

  std::string value_of(const Place& place) const {
    return place.kind == Place::Kind::message ? received_.at(place.message) : values_.at(place.location());
  }

  // The source that is this rank's own, if the item combines it with a message from every other rank, in rank order,
  // and they were received together.
  const Place* own_in_rank_order(const Item& item) const {
    if (item.from.size() != static_cast<size_t>(program_.rank_count()) || item.from.size() == 2) return nullptr;
    for (size_t i = 0; i < item.from.size(); ++i) {
      const Place& place = item.from[i];
      const bool is_own = static_cast<int>(i) == rank_;
      if (is_own != (place.kind == Place::Kind::local)) return nullptr;
      if (is_own) continue;
      const int from = program_.messages[place.message].from;
      if (from != static_cast<int>(i)) return nullptr;
      if (received_.at(place.message) != text("r%d[%u]", arrays_ - 1, source_of(from))) return nullptr;
    }
    return &item.from[static_cast<size_t>(rank_)];
  }

  // Adds what computes and sends the item's values to `sends`, and what stores them to `stores`, which may be the same
  // text: another rank waits for messages, so all sends of a phase come before its stores.
  void add(const Item& item, std::string& sends, std::string& stores) {
    std::string value;
    if (item.kind == Item::Kind::reduce) {
      value = declare();
      const char* const finishes = boolean(item.finishes && program_.op == NCAST_AVG);
      if (const Place* const own = own_in_rank_order(item)) {
        // The same code for all ranks.
        sends += text("  %s = w.template reduce_in_rank_order<%s>(%s, r%d);\n", value.c_str(), finishes,
                      value_of(*own).c_str(), arrays_ - 1);
      } else {
        std::vector<std::string> sources;
        sources.reserve(item.from.size());
        for (const Place& place : item.from) sources.push_back(value_of(place));
        // reduced() commutes, so ranks that only differ in the order of these can have the same program.
        if (item.from[0].kind == Place::Kind::local && item.from[1].kind == Place::Kind::message)
          std::swap(sources[0], sources[1]);
        sends += text("  %s = w.template reduce<%s>(", value.c_str(), finishes);
        for (size_t i = 0; i < sources.size(); ++i) sends += (i == 0 ? "" : ", ") + sources[i];
        sends += ");\n";
      }
    } else {
      value = value_of(item.from[0]);
    }
    for (const Place& place : item.to) {
      if (place.kind != Place::Kind::message) continue;
      const auto to = static_cast<uint32_t>(program_.messages[place.message].to);
      const std::string peer = word({PacketWord::number, to});
      sends += text("  w.send(%s, %s, %s);\n", peer.c_str(), number_of(place).c_str(), value.c_str());
    }
    for (const Place& place : item.to) {
      if (place.kind != Place::Kind::local) continue;
      values_[place.location()] = value;
      if (place.buffer == plan::Buffer::output && stored_[place.location()].contains(&item))
        stores += "  w.store(" + chunk(place) + ", " + value + ");\n";
    }
  }

  const Program& program_;
  int rank_;
  const std::vector<uint32_t>& numbers_;  // of messages, among those between their ranks
  std::map<Location, std::string> values_;
  std::map<uint32_t, std::string> received_;
  bool in_phases_;
  const char* fail_;  // leaves the code when the communicator is stopped
  std::map<Location, std::set<const Item*>> stored_;
  std::string declarations_, loads_;
  std::vector<StrandPhase> phases_;
  std::vector<PacketWord> words_;
  size_t phase_ = 0, first_word_ = 0;  // the current phase, and its first word
  bool uses_scratch_ = false;
  int units_ = 0, arrays_ = 0;  // variables of the current phase
};

}  // namespace

StrandCode straight_code(const Program& program, int rank, const std::vector<uint32_t>& numbers,
                         const std::vector<const Item*>& strand) {
  return StrandEmitter(program, rank, numbers, false).emit_straight(strand);
}

std::optional<StrandCode> code_in_phases(const Program& program, int rank, const std::vector<uint32_t>& numbers,
                                         const std::vector<const Item*>& strand, size_t phases) {
  return StrandEmitter(program, rank, numbers, true).emit_phases(strand, phases);
}

}  // namespace narrowcast::executor::cuda::generated
