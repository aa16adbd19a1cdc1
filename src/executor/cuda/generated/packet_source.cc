// Generates the kernels that work by packets.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "executor/cuda/generated/source.h"
#include "executor/cuda/generated/strand_code.h"
#include "executor/cuda/generated/strands.h"
#include "executor/cuda/generated/text.h"
#include "select/packet_shape.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr const char* packet_include = R"(
#include "executor/cuda/generated/plan_packets.cuh"
)";

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
      if (!in_phases) continue;
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
    has_loops_ = in_phases_ && receives() > max_straight_receives;
    if (receives() > (in_phases_ ? max_receives_in_phases : max_straight_receives) ||
        most_strands_ * width > max_packet_words) {
      *kernels = {};
      return;
    }
    kernels->text = text_of(width);
  }

 private:
  bool add_rank(int rank) {
    auto& of_rank = words_.emplace_back();
    for (const auto& items : strands_[static_cast<size_t>(rank)]) {
      const std::optional<StrandCode> code = in_phases_ ? code_in_phases(program_, rank, numbers_, items, phases_)
                                                        : straight_code(program_, rank, numbers_, items);
      if (!code) return false;
      const auto [found, is_new] = programs_.try_emplace(code->phases, programs_.size());
      auto& words = of_rank.emplace_back();
      words.push_back({PacketWord::number, static_cast<uint32_t>(found->second)});
      words.insert(words.end(), code->words.begin(), code->words.end());
    }
    return true;
  }

  bool has_tokens() const {
    std::set<std::pair<int, int>> connected;
    for (const Message& message : program_.messages) connected.insert({message.from, message.to});
    const auto ranks = static_cast<size_t>(program_.rank_count());
    return connected.size() != ranks * (ranks - 1);
  }
  // Whether all ranks have a program for every job.
  bool has_all_strands() const {
    return std::ranges::all_of(strands_, [&](const RankStrands& of_rank) { return of_rank.size() == most_strands_; });
  }
  // Whether all jobs have the same program.
  bool is_uniform() const { return programs_.size() == 1 && has_all_strands(); }
  // The phase after the last one of those that are a loop: all programs have the same code in them. Short programs have
  // no loops.
  size_t end_of_loop(size_t first) const {
    size_t end = first + 1;
    // The CTA advances after phase 0.
    while (
        has_loops_ && first != 0 && end < phases_ &&
        std::ranges::all_of(programs_, [&](const auto& program) { return program.first[end] == program.first[first]; }))
      ++end;
    return end;
  }
  size_t receives() const {
    size_t found = 0;
    for (size_t phase = 0; phase < phases_; phase = end_of_loop(phase))
      for (const auto& program : programs_) found += program.first[phase].receives;
    return found;
  }
  // Calls the function of a phase, or of those of a loop from it on, for the current job.
  std::string call_of(size_t phase, const std::string& indent) const {
    const auto call = [&](const std::vector<StrandPhase>& code, size_t program) {
      size_t first = 1;  // the first word is the number of the program
      for (size_t i = 0; i < phase; ++i) first += code[i].words;
      if (!in_phases_) return text("program_%zu(w, q + %zu, has_unit);", program, first);
      if (end_of_loop(phase) == phase + 1)
        return text("if (!program_%zu_phase_%zu(w, q + %zu, %zu)) return;", program, phase, first, phase);
      return text("if (!program_%zu_phase_%zu(w, q + %zu + (phase - %zu) * %zu, phase)) return;", program, phase, first,
                  phase, code[phase].words);
    };
    if (is_uniform()) return indent + call(programs_.begin()->first, 0) + "\n";
    std::string out = indent + "switch (q[0]) {\n";
    for (const auto& [code, number] : programs_) {
      if (code[phase].code.empty()) continue;
      // Without a comparison if it is the only one that is left.
      const bool is_last = has_all_strands() && !in_phases_ && code == programs_.rbegin()->first;
      const std::string name = is_last ? "default" : text("case %zu", number);
      out += text("%s  %s:\n%s    %s\n%s    break;\n", indent.c_str(), name.c_str(), indent.c_str(),
                  call(code, number).c_str(), indent.c_str());
    }
    if (!in_phases_ && !has_all_strands()) out += indent + "  default: w.advance();\n";
    return out + indent + "}\n";
  }
  bool is_used(size_t phase) const {
    return std::ranges::any_of(programs_, [&](const auto& program) { return !program.first[phase].code.empty(); });
  }

  std::string text_of(size_t width) const {
    std::string out = packet_include;
    out += "\nnamespace narrowcast::executor::cuda::generated {\nnamespace {\n\n";
    out += text("using Call = PlanPacketCallOf<%zu>;\n\n", most_strands_ * width);
    for (const auto& [code, number] : programs_) {
      for (size_t phase = 0; phase < code.size(); phase = end_of_loop(phase)) {
        if (code[phase].code.empty()) continue;
        out += "template <typename Thread>\n__device__ __forceinline__ ";
        out += in_phases_
                   ? text("bool program_%zu_phase_%zu(Thread& w, const uint32_t* q, uint32_t phase) {\n", number, phase)
                   : text("void program_%zu(Thread& w, const uint32_t* q, bool has_unit) {\n", number);
        out +=
            "  using Unit = typename Thread::Unit;\n" + code[phase].code + (in_phases_ ? "  return true;\n}\n" : "}\n");
      }
    }
    out += "\ntemplate <typename Packet>\n__device__ __forceinline__ void run(const Call& call) {\n";
    out +=
        text("  PlanPackets<Packet, %s, %s, %d, %zu, %s, %s> w(call);\n", name_of(program_.dtype).c_str(),
             name_of(program_.op), program_.rank_count(), most_strands_, boolean(has_tokens()), boolean(!in_phases_));
    const std::string numbers = text("const uint32_t* const q = call.table + w.strand() * %zu;\n", width);
    if (in_phases_) {
      out += "  const uint32_t first = w.first_job(), warps = gridDim.x * (blockDim.x / 32);\n";
      out += "  device::wait_for_stream();\n#pragma unroll 1\n";
      out += text("  for (uint32_t job = first; w.has_turn(job, %zu) || job == first; job += warps) {\n", phases_);
      for (size_t phase = 0; phase < phases_; phase = end_of_loop(phase)) {
        if (const size_t end = end_of_loop(phase); end != phase + 1) {
          out += text("#pragma unroll 1\n    for (uint32_t phase = %zu; phase != %zu; ++phase) {\n", phase, end);
          out += "      if (!w.begin_job(job - phase * call.delay)) continue;\n      ";
          out += numbers + call_of(phase, "      ") + "    }\n";
        } else if (is_used(phase)) {
          out += text("    if (w.begin_job(job - %zu * call.delay)) {\n      ", phase) + numbers +
                 call_of(phase, "      ") + "    }\n";
        }
        if (phase == 0) out += "    if (job == first && !w.advance()) return;\n";
      }
      out += "  }\n";
    } else {
      out += "  const bool has_unit = w.begin_job(w.first_job());\n  " + numbers;
      out += "  device::wait_for_stream();\n" + call_of(0, "  ");
    }
    out += "  w.finish();\n}\n\n}  // namespace\n\n";
    const auto add_kernel = [&](const char* name, const char* packet, const char* only_the_other) {
      out += text(
          "#ifndef %s\n"
          "extern \"C\" __global__ void __launch_bounds__(%u) %s(const __grid_constant__ Call call) {\n"
          "  run<channel::%s>(call);\n}\n#endif\n",
          only_the_other, select::most_packet_warps(program_.reduces) * 32, name, packet);
    };
    add_kernel(packet_kernel, "ShortPacket", only_lines);
    add_kernel(line_kernel, "LinePacket", only_packets);
    return out + "\n}  // namespace narrowcast::executor::cuda::generated\n";
  }

  const Program& program_;
  const std::vector<RankStrands>& strands_;
  const std::vector<uint32_t>& numbers_;
  bool in_phases_, has_loops_ = false;
  size_t most_strands_ = 0, phases_ = 1;
  std::map<std::vector<StrandPhase>, size_t> programs_;      // number by the code of all phases
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
    strands.push_back(strands_of(program, rank));
    source->strands = std::max(source->strands, static_cast<uint32_t>(strands.back().size()));
  }
  PacketEmitter(program, strands, numbers, true).emit(&source->in_phases);
  if (source->in_phases.text.empty()) {
    *source = {};
  } else {
    PacketEmitter(program, strands, numbers, false).emit(&source->straight);
  }
}

}  // namespace narrowcast::executor::cuda::generated
