// Generates the kernels that work by packets.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "executor/cuda/generated/source.h"
#include "executor/cuda/generated/text.h"
#include "select/packet_shape.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr const char* packet_include = R"(
#include "executor/cuda/generated/plan_packets.cuh"
)";

using Location = std::tuple<plan::Buffer, uint32_t>;

// A rank's items, of all groups, in an order in which they can be executed one after another by all ranks.
std::vector<const Item*> items_of(const RankProgram& rank) {
  std::vector<const Item*> items;
  for (const GroupProgram& group : rank.groups)
    for (const Item& item : group.items)
      if (item.kind == Item::Kind::copy || item.kind == Item::Kind::reduce) items.push_back(&item);
  std::ranges::sort(items, {}, [](const Item* item) { return std::pair{item->depth, item->order}; });
  return items;
}

// Divides items into strands, which have no values in common and run on different warps.
class Strands {
 public:
  explicit Strands(std::vector<const Item*> items) : items_(std::move(items)), parent_(items_.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    std::map<Location, size_t> users;  // of locations that items write
    for (const Item* item : items_)
      for (const Place& place : item->to)
        if (place.kind == Place::Kind::local) users.try_emplace({place.buffer, place.chunk}, items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      for (const auto* places : {&items_[i]->from, &items_[i]->to}) {
        for (const Place& place : *places) {
          if (place.kind != Place::Kind::local) continue;
          const auto found = users.find({place.buffer, place.chunk});
          if (found == users.end()) continue;
          if (found->second != items_.size()) parent_[root(i)] = root(found->second);
          found->second = i;
        }
      }
    }
  }

  // The i-th part that sends is together with the i-th part that only receives.
  std::vector<std::vector<const Item*>> get() {
    std::map<size_t, std::vector<const Item*>> parts;
    for (size_t i = 0; i < items_.size(); ++i) parts[root(i)].push_back(items_[i]);
    std::vector<std::vector<const Item*>> sending, others;
    for (auto& [number, part] : parts) {
      const bool sends = std::ranges::any_of(part, [](const Item* item) {
        return std::ranges::any_of(item->to, [](const Place& place) { return place.kind == Place::Kind::message; });
      });
      (sends ? sending : others).push_back(std::move(part));
    }
    std::vector<std::vector<const Item*>>& strands = sending;
    for (size_t i = 0; i < others.size(); ++i) {
      if (i == strands.size()) strands.emplace_back();
      strands[i].insert(strands[i].end(), others[i].begin(), others[i].end());
    }
    return strands;
  }

 private:
  size_t root(size_t item) {
    while (parent_[item] != item) item = parent_[item] = parent_[parent_[item]];
    return item;
  }
  std::vector<const Item*> items_;
  std::vector<size_t> parent_;
};

// The program of a strand. Numbers that differ between ranks, such as peers and chunks, are in a table, so that ranks
// with the same program share its code.
class StrandEmitter {
 public:
  StrandEmitter(const Program& program, int rank, const std::vector<uint32_t>& numbers)
      : program_(program), rank_(rank), numbers_(numbers) {}

  void emit(const std::vector<const Item*>& items) {
    size_t first_receiving = 0;
    while (first_receiving < items.size() && !has_message(*items[first_receiving])) ++first_receiving;
    find_last_writes(items);
    // Loads first, because the compiler does not move them above stores.
    for (size_t i = 0; i < items.size(); ++i)
      for (const Place& place : items[i]->from)
        if (place.kind == Place::Kind::local && !written_before(items, i, place)) load(place);
    std::string sends, rest;
    for (size_t i = 0; i < first_receiving; ++i) add(*items[i], sends, rest);
    for (size_t i = first_receiving; i < items.size();) i = add_received(items, i, rest);
    body_ = declarations_;
    if (!loads_.empty() || !sends.empty())
      body_ += "  if (w.has_unit()) {\n" + loads_ + "    w.begin();\n" + sends + "  }\n";
    body_ += "  if (!w.advance() || !w.has_unit()) return;\n" + rest;
  }
  const std::string& body() const { return body_; }
  const std::vector<uint32_t>& words() const { return words_; }
  size_t receives() const { return static_cast<size_t>(arrays_); }

 private:
  static bool has_message(const Item& item) {
    return std::ranges::any_of(item.from, [](const Place& place) { return place.kind == Place::Kind::message; });
  }
  static bool sends(const Item& item) {
    return std::ranges::any_of(item.to, [](const Place& place) { return place.kind == Place::Kind::message; });
  }
  static Location location(const Place& place) { return {place.buffer, place.chunk}; }

  std::string declare() {
    std::string name = "u" + std::to_string(units_++);
    declarations_ += "  Unit " + name + ";\n";
    return name;
  }
  std::string word(uint32_t value) {
    words_.push_back(value);
    return text("q[%zu]", words_.size() - 1);
  }
  std::string chunk(const Place& place) {
    const std::string piece = word(place.chunk / program_.chunks);
    return piece + ", " + word(place.chunk % program_.chunks);
  }

  void find_last_writes(const std::vector<const Item*>& items) {
    for (const Item* item : items)
      for (const Place& place : item->to)
        if (place.kind == Place::Kind::local) last_write_[location(place)] = item;
  }
  static bool written_before(const std::vector<const Item*>& items, size_t end, const Place& place) {
    for (size_t i = 0; i < end; ++i)
      for (const Place& to : items[i]->to)
        if (to.kind == Place::Kind::local && location(to) == location(place)) return true;
    return false;
  }
  void load(const Place& place) {
    if (values_.contains(location(place))) return;
    const std::string name = declare();
    const char* const buffer = place.buffer == plan::Buffer::input ? "input" : "output";
    loads_ += text("    %s = w.template load<ChunkRef::%s>(", name.c_str(), buffer) + chunk(place) + ");\n";
    values_[location(place)] = name;
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
    for (size_t i = first; i < end; ++i) add(*items[i], out, out);
    return end;
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
  void receive(const std::vector<Place>& messages, std::string& out) {
    const auto from = [&](const Place& place) { return program_.messages[place.message].from; };
    const std::string number = std::to_string(numbers_[messages[0].message]);
    const std::string name = "r" + std::to_string(arrays_++);
    if (messages.size() == 1) {
      const std::string source = word(source_of(from(messages[0])));
      out += "  Unit " + name + ";\n  if (!w.receive_one(" + source + ", " + number + ", " + name + ")) return;\n";
      received_[messages[0].message] = name;
      return;
    }
    uint32_t mask = 0;
    for (const Place& place : messages) {
      mask |= 1u << source_of(from(place));
      received_[place.message] = text("%s[%u]", name.c_str(), source_of(from(place)));
    }
    out += text("  Unit %s[%d];\n  if (!w.receive(0x%x, ", name.c_str(), program_.rank_count() - 1, mask) + number +
           ", " + name + ")) return;\n";
  }
  // Sources are the other ranks, numbered without a gap.
  uint32_t source_of(int from) const { return static_cast<uint32_t>(from - (from > rank_ ? 1 : 0)); }

  std::string value_of(const Place& place) const {
    return place.kind == Place::Kind::message ? received_.at(place.message) : values_.at(location(place));
  }

  void add(const Item& item, std::string& sends, std::string& stores) {
    std::string value;
    if (item.kind == Item::Kind::reduce) {
      std::vector<std::string> sources;
      sources.reserve(item.from.size());
      for (const Place& place : item.from) sources.push_back(value_of(place));
      // reduced() commutes, so the first two ranks can have the same program.
      if (item.from[0].kind == Place::Kind::local && item.from[1].kind == Place::Kind::message)
        std::swap(sources[0], sources[1]);
      value = declare();
      sends += text("  %s = w.template reduce<%s>(", value.c_str(), item.finishes ? "true" : "false");
      for (size_t i = 0; i < sources.size(); ++i) sends += (i == 0 ? "" : ", ") + sources[i];
      sends += ");\n";
    } else {
      value = value_of(item.from[0]);
    }
    for (const Place& place : item.to) {
      if (place.kind != Place::Kind::message) continue;
      const std::string peer = word(static_cast<uint32_t>(program_.messages[place.message].to));
      sends += "  w.send(" + peer + text(", %u, %s);\n", numbers_[place.message], value.c_str());
    }
    for (const Place& place : item.to) {
      if (place.kind != Place::Kind::local) continue;
      values_[location(place)] = value;
      if (place.buffer == plan::Buffer::output && last_write_[location(place)] == &item)
        stores += "  w.store(" + chunk(place) + ", " + value + ");\n";
    }
  }

  const Program& program_;
  int rank_;
  const std::vector<uint32_t>& numbers_;  // of messages, among those between their ranks
  std::map<Location, std::string> values_;
  std::map<uint32_t, std::string> received_;
  std::map<Location, const Item*> last_write_;
  std::string declarations_, loads_, body_;
  std::vector<uint32_t> words_;
  int units_ = 0, arrays_ = 0;
};

// What packets cannot do: memory of other ranks, compression. In place, what is read must be what was there before.
bool can_use_packets(const Program& program) {
  return !program.accesses_peers && program.codec == NCAST_CODEC_RAW && program.rank_count() >= 2 &&
         program.is_staged && program.in_place != plan::InPlace::yes;
}

}  // namespace

void generate_packets(const Program& program, PacketSource* source) {
  if (!can_use_packets(program)) return;
  std::map<std::pair<int, int>, uint32_t> counts;
  std::vector<uint32_t> numbers;
  numbers.reserve(program.messages.size());
  for (const Message& message : program.messages) {
    uint32_t& count = counts[{message.from, message.to}];
    numbers.push_back(count++);
    source->messages = std::max(source->messages, count);
  }
  std::vector<std::vector<std::vector<const Item*>>> strands;
  strands.reserve(program.ranks.size());
  for (const RankProgram& rank : program.ranks) {
    strands.push_back(Strands(items_of(rank)).get());
    source->strands = std::max(source->strands, static_cast<uint32_t>(strands.back().size()));
  }

  std::string& out = source->text;
  out = packet_include;
  out += "\nnamespace narrowcast::executor::cuda::generated {\nnamespace {\n\n";
  std::map<std::string, size_t> programs;  // number by body
  size_t receives = 0;
  std::string functions;
  for (const auto& of_rank : strands) {
    const auto rank = static_cast<int>(&of_rank - strands.data());
    std::vector<uint32_t>& words = source->tables.emplace_back(source->strands, StrandRef::of(StrandRef::none, 0).word);
    for (uint32_t strand = 0; strand < source->strands; ++strand) {
      if (strand >= of_rank.size()) continue;
      StrandEmitter emitter(program, rank, numbers);
      emitter.emit(of_rank[strand]);
      const auto [found, is_new] = programs.try_emplace(emitter.body(), programs.size());
      if (is_new) receives += emitter.receives();
      if (receives > max_packet_receives || words.size() + emitter.words().size() > max_packet_words) {
        *source = {};
        return;
      }
      if (is_new)
        functions += text(
                         "template <typename Thread>\n__device__ __forceinline__ void program_%zu(Thread& w, "
                         "const uint32_t* q) {\n  using Unit = typename Thread::Unit;\n",
                         found->second) +
                     emitter.body() + "}\n";
      words[strand] = StrandRef::of(static_cast<uint32_t>(found->second), static_cast<uint32_t>(words.size())).word;
      words.insert(words.end(), emitter.words().begin(), emitter.words().end());
    }
  }
  out += functions;
  out +=
      "\ntemplate <typename Packet, bool aligned>\n"
      "__device__ __forceinline__ void run_packets(const PlanPacketCall& call) {\n";
  out += text("  PlanPackets<Packet, %s, %s, aligned> w(call);\n", name_of(program.dtype).c_str(), name_of(program.op));
  out += text("  const StrandRef strand = w.strand(%u);\n", source->strands);
  out += "  const uint32_t* const q = w.numbers(strand);\n";
  out += "  device::wait_for_stream();\n  switch (strand.program()) {\n";
  for (size_t i = 0; i < programs.size(); ++i) out += text("    case %zu: program_%zu(w, q); break;\n", i, i);
  out += "    default: w.advance();\n  }\n  w.finish();\n}\n\n}  // namespace\n\n";
  const auto add_kernel = [&](const char* name, const char* arguments) {
    out += text(
        "extern \"C\" __global__ void __launch_bounds__(%u) %s(const __grid_constant__ PlanPacketCall call) {\n"
        "  run_packets<channel::%s>(call);\n}\n",
        select::most_packet_warps(program.reduces) * 32, name, arguments);
  };
  add_kernel(packet_kernel, "ShortPacket, false");
  add_kernel(aligned_packet_kernel, "ShortPacket, true");
  add_kernel(line_kernel, "LinePacket, false");
  out += "\n}  // namespace narrowcast::executor::cuda::generated\n";
}

}  // namespace narrowcast::executor::cuda::generated
