// Generates the kernels that work by packets.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
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
using RankStrands = std::vector<std::vector<const Item*>>;

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
  RankStrands get() {
    std::map<size_t, std::vector<const Item*>> parts;
    for (size_t i = 0; i < items_.size(); ++i) parts[root(i)].push_back(items_[i]);
    RankStrands sending, others;
    for (auto& [number, part] : parts) {
      const bool sends = std::ranges::any_of(part, [](const Item* item) {
        return std::ranges::any_of(item->to, [](const Place& place) { return place.kind == Place::Kind::message; });
      });
      (sends ? sending : others).push_back(std::move(part));
    }
    RankStrands& strands = sending;
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

// In reductions a warp executes a strand for every rank, as the hand-written kernels do: as many warps as there are
// strands would often not fit on the GPU at once.
RankStrands bundled(RankStrands strands, size_t of_bundle) {
  RankStrands bundles((strands.size() + of_bundle - 1) / of_bundle);
  for (size_t i = 0; i < strands.size(); ++i) {
    auto& bundle = bundles[i / of_bundle];
    bundle.insert(bundle.end(), strands[i].begin(), strands[i].end());
    std::ranges::sort(bundle, {}, [](const Item* item) { return std::pair{item->depth, item->order}; });
  }
  return bundles;
}

// The code of a strand, and its numbers, such as peers and chunks. Strands with equal code share it. Straight code
// keeps all values in registers. Code in phases loads a value again in every phase that uses it.
class StrandEmitter {
 public:
  StrandEmitter(const Program& program, int rank, const std::vector<uint32_t>& numbers, bool in_phases)
      : program_(program), rank_(rank), numbers_(numbers), fail_(in_phases ? "return false" : "return") {}

  void emit_straight(const std::vector<const Item*>& items) {
    find_last_writes(items);
    // Loads first, because the compiler does not move them above stores.
    load_all(items);
    std::string sends, rest;
    size_t i = 0;
    for (; i < items.size() && !has_message(*items[i]); ++i) add(*items[i], sends, rest);
    while (i < items.size()) i = add_received(items, i, rest);
    std::string body = declarations_;
    if (!loads_.empty() || !sends.empty())
      body += "  if (has_unit) {\n" + loads_ + "    w.begin();\n" + sends + "  }\n";
    phases_ = {body + "  if (!w.advance() || !has_unit) return;\n" + rest};
  }

  // Returns false if a value that is not in the input or output would have to be kept.
  bool emit_phases(const std::vector<const Item*>& items, size_t phases) {
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
      values_.clear();
      declarations_.clear();
      loads_.clear();
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
      phases_.push_back(now.empty() ? "" : declarations_ + loads_ + code);
      if (uses_scratch_) return false;
    }
    return true;
  }
  const std::vector<std::string>& phases() const { return phases_; }
  const std::vector<PacketWord>& words() const { return words_; }
  size_t receives() const { return static_cast<size_t>(arrays_); }

 private:
  static bool has_message(const Item& item) {
    return std::ranges::any_of(item.from, [](const Place& place) { return place.kind == Place::Kind::message; });
  }
  static bool sends(const Item& item) {
    return std::ranges::any_of(item.to, [](const Place& place) { return place.kind == Place::Kind::message; });
  }
  static Location location(const Place& place) { return {place.buffer, place.chunk}; }
  static bool writes(const Item& item, const Place& place) {
    return std::ranges::any_of(
        item.to, [&](const Place& to) { return to.kind == Place::Kind::local && location(to) == location(place); });
  }

  std::string declare() {
    std::string name = "u" + std::to_string(units_++);
    declarations_ += "  Unit " + name + ";\n";
    return name;
  }
  std::string word(PacketWord value) {
    words_.push_back(value);
    return text("q[%zu]", words_.size());  // the first word is the number of the program
  }
  std::string chunk(const Place& place) {
    const uint32_t buffer = place.buffer == plan::Buffer::input ? ChunkRef::input : ChunkRef::output;
    const uint32_t ref = ChunkRef::of(buffer, place.chunk / program_.chunks, place.chunk % program_.chunks).word;
    const std::string offset = word({PacketWord::offset, ref});
    return offset + ", " + word({PacketWord::bytes, ref});
  }

  // Only the last write to a location is stored, and in phases also the last one before a later phase reads it.
  void find_last_writes(const std::vector<const Item*>& items) {
    for (const Item* item : items)
      for (const Place& place : item->to)
        if (place.kind == Place::Kind::local) stored_[location(place)] = {item};
  }
  void keep_for_later(const std::vector<const Item*>& items, const Place& place) {
    for (auto item = items.rbegin(); item != items.rend(); ++item) {
      if (!writes(**item, place)) continue;
      stored_[location(place)].insert(*item);
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
    if (values_.contains(location(place))) return;
    if (place.buffer == plan::Buffer::scratch) uses_scratch_ = true;
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
    std::vector<const Item*> received(items.begin() + static_cast<std::ptrdiff_t>(first),
                                      items.begin() + static_cast<std::ptrdiff_t>(end));
    // The plan's order may depend on the rank, and with it the code.
    std::set<Location> stored;
    if (std::ranges::all_of(received, [&](const Item* item) {
          return is_plain_receive(item) && stored.insert(location(item->to[0])).second;
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
  void receive(const std::vector<Place>& messages, std::string& out) {
    const auto from = [&](const Place& place) { return program_.messages[place.message].from; };
    const std::string number = std::to_string(numbers_[messages[0].message]);
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
    return place.kind == Place::Kind::message ? received_.at(place.message) : values_.at(location(place));
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

  void add(const Item& item, std::string& sends, std::string& stores) {
    std::string value;
    if (item.kind == Item::Kind::reduce) {
      value = declare();
      const char* const finishes = item.finishes ? "true" : "false";
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
      sends += "  w.send(" + peer + text(", %u, %s);\n", numbers_[place.message], value.c_str());
    }
    for (const Place& place : item.to) {
      if (place.kind != Place::Kind::local) continue;
      values_[location(place)] = value;
      if (place.buffer == plan::Buffer::output && stored_[location(place)].contains(&item))
        stores += "  w.store(" + chunk(place) + ", " + value + ");\n";
    }
  }

  const Program& program_;
  int rank_;
  const std::vector<uint32_t>& numbers_;  // of messages, among those between their ranks
  std::map<Location, std::string> values_;
  std::map<uint32_t, std::string> received_;
  const char* fail_;  // leaves the code when the communicator is stopped
  std::map<Location, std::set<const Item*>> stored_;
  std::string declarations_, loads_;
  std::vector<std::string> phases_;
  std::vector<PacketWord> words_;
  bool uses_scratch_ = false;
  int units_ = 0, arrays_ = 0;
};

// What packets cannot do: memory of other ranks, compression. In place, what is read must be what was there before.
bool can_use_packets(const Program& program) {
  return !program.accesses_peers && program.codec == NCAST_CODEC_RAW && program.rank_count() >= 2 &&
         program.is_staged && program.in_place != plan::InPlace::yes;
}

// Writes the kernels of one form.
class PacketEmitter {
 public:
  PacketEmitter(const Program& program, const std::vector<RankStrands>& strands, const std::vector<uint32_t>& numbers,
                bool in_phases)
      : program_(program), strands_(strands), numbers_(numbers), in_phases_(in_phases) {
    for (const RankStrands& of_rank : strands) {
      most_strands_ = std::max(most_strands_, of_rank.size());
      for (const auto& strand : of_rank)
        for (const Item* item : strand) phases_ = std::max(phases_, static_cast<size_t>(item->depth) + 1);
    }
  }

  // Leaves the text empty if the program cannot have this form.
  void emit(PacketKernels* kernels) {
    for (size_t rank = 0; rank < strands_.size(); ++rank)
      if (!add_rank(static_cast<int>(rank))) return;
    size_t width = 0;
    for (const auto& of_rank : words_)
      for (const auto& words : of_rank) width = std::max(width, words.size());
    for (const auto& of_rank : words_) {
      std::vector<PacketWord>& table = kernels->tables.emplace_back();
      for (size_t strand = 0; strand < most_strands_; ++strand) {
        const size_t end = table.size() + width;
        if (strand < of_rank.size()) {
          table.insert(table.end(), of_rank[strand].begin(), of_rank[strand].end());
        } else {
          table.push_back({PacketWord::number, PacketWord::no_program});
        }
        table.resize(end, {PacketWord::number, 0});
      }
    }
    if (receives_ > max_packet_receives || most_strands_ * width > max_packet_words) {
      *kernels = {};
      return;
    }
    kernels->text = text_of(width);
  }

 private:
  bool add_rank(int rank) {
    auto& of_rank = words_.emplace_back();
    for (const auto& items : strands_[static_cast<size_t>(rank)]) {
      StrandEmitter emitter(program_, rank, numbers_, in_phases_);
      if (!in_phases_) {
        emitter.emit_straight(items);
      } else if (!emitter.emit_phases(items, phases_)) {
        return false;
      }
      const auto [found, is_new] = programs_.try_emplace(emitter.phases(), programs_.size());
      if (is_new) receives_ += emitter.receives();
      auto& words = of_rank.emplace_back();
      words.push_back({PacketWord::number, static_cast<uint32_t>(found->second)});
      words.insert(words.end(), emitter.words().begin(), emitter.words().end());
    }
    return true;
  }

  bool has_tokens() const {
    std::set<std::pair<int, int>> connected;
    for (const Message& message : program_.messages) connected.insert({message.from, message.to});
    const auto ranks = static_cast<size_t>(program_.rank_count());
    return connected.size() != ranks * (ranks - 1);
  }
  // Whether all jobs have the same program.
  bool is_uniform() const {
    return programs_.size() == 1 &&
           std::ranges::all_of(strands_, [&](const RankStrands& of_rank) { return of_rank.size() == most_strands_; });
  }
  // Calls the function of a phase for the current job.
  std::string call_of(size_t phase, const std::string& indent) const {
    const auto call = [&](size_t program) {
      return in_phases_ ? text("if (!program_%zu_phase_%zu(w, q)) return;", program, phase)
                        : text("program_%zu(w, q, has_unit);", program);
    };
    if (is_uniform()) return indent + call(0) + "\n";
    std::string out = indent + "switch (q[0]) {\n";
    for (const auto& [code, number] : programs_)
      if (!code[phase].empty())
        out += text("%s  case %zu:\n%s    %s\n%s    break;\n", indent.c_str(), number, indent.c_str(),
                    call(number).c_str(), indent.c_str());
    if (!in_phases_) out += indent + "  default: w.advance();\n";
    return out + indent + "}\n";
  }
  bool is_used(size_t phase) const {
    return std::ranges::any_of(programs_, [&](const auto& program) { return !program.first[phase].empty(); });
  }

  std::string text_of(size_t width) const {
    std::string out = packet_include;
    out += "\nnamespace narrowcast::executor::cuda::generated {\nnamespace {\n\n";
    out += text("using Call = PlanPacketCallOf<%zu>;\n\n", most_strands_ * width);
    for (const auto& [code, number] : programs_) {
      for (size_t phase = 0; phase < code.size(); ++phase) {
        if (code[phase].empty()) continue;
        out += "template <typename Thread>\n__device__ __forceinline__ ";
        out += in_phases_ ? text("bool program_%zu_phase_%zu(Thread& w, const uint32_t* q) {\n", number, phase)
                          : text("void program_%zu(Thread& w, const uint32_t* q, bool has_unit) {\n", number);
        out += "  using Unit = typename Thread::Unit;\n" + code[phase] + (in_phases_ ? "  return true;\n}\n" : "}\n");
      }
    }
    out += "\ntemplate <typename Packet>\n__device__ __forceinline__ void run(const Call& call) {\n";
    out += text("  PlanPackets<Packet, %s, %s, %d, %zu, %s, %s> w(call);\n", name_of(program_.dtype).c_str(),
                name_of(program_.op), program_.rank_count(), most_strands_, has_tokens() ? "true" : "false",
                in_phases_ ? "false" : "true");
    const std::string numbers = text("const uint32_t* const q = call.table + w.strand() * %zu;\n", width);
    if (in_phases_) {
      out += "  const uint32_t first = w.first_job(), warps = gridDim.x * (blockDim.x / 32);\n";
      out += "  device::wait_for_stream();\n#pragma unroll 1\n";
      out += text("  for (uint32_t job = first; w.has_turn(job, %zu) || job == first; job += warps) {\n", phases_);
      for (size_t phase = 0; phase < phases_; ++phase) {
        if (is_used(phase))
          out += text("    if (w.begin_job(job - %zu * call.delay)) {\n      ", phase) + numbers +
                 call_of(phase, "      ") + "    }\n";
        if (phase == 0) out += "    if (job == first && !w.advance()) return;\n";
      }
      out += "  }\n";
    } else {
      out += "  const bool has_unit = w.begin_job(w.first_job());\n  " + numbers;
      out += "  device::wait_for_stream();\n" + call_of(0, "  ");
    }
    out += "  w.finish();\n}\n\n}  // namespace\n\n";
    const auto add_kernel = [&](const char* name, const char* packet) {
      out += text(
          "extern \"C\" __global__ void __launch_bounds__(%u) %s(const __grid_constant__ Call call) {\n"
          "  run<channel::%s>(call);\n}\n",
          select::most_packet_warps(program_.reduces) * 32, name, packet);
    };
    add_kernel(packet_kernel, "ShortPacket");
    add_kernel(line_kernel, "LinePacket");
    return out + "\n}  // namespace narrowcast::executor::cuda::generated\n";
  }

  const Program& program_;
  const std::vector<RankStrands>& strands_;
  const std::vector<uint32_t>& numbers_;
  bool in_phases_;
  size_t most_strands_ = 0, phases_ = 1, receives_ = 0;
  std::map<std::vector<std::string>, size_t> programs_;      // number by the code of all phases
  std::vector<std::vector<std::vector<PacketWord>>> words_;  // by rank and strand
};

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
  std::vector<RankStrands> strands;
  strands.reserve(program.ranks.size());
  for (const RankProgram& rank : program.ranks) {
    strands.push_back(Strands(items_of(rank)).get());
    if (program.reduces) strands.back() = bundled(std::move(strands.back()), program.ranks.size());
    source->strands = std::max(source->strands, static_cast<uint32_t>(strands.back().size()));
  }
  PacketEmitter(program, strands, numbers, false).emit(&source->straight);
  if (!source->straight.text.empty()) PacketEmitter(program, strands, numbers, true).emit(&source->in_phases);
  if (source->in_phases.text.empty()) *source = {};
}

}  // namespace narrowcast::executor::cuda::generated
