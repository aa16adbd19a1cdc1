#include "executor/cuda/generated/source.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "codec/codec.h"
#include "executor/cuda/generated/group_code.h"
#include "executor/cuda/generated/program_loop.h"
#include "executor/cuda/generated/text.h"
#include "select/block_shape.h"
#include "status/error.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr const char* window_include = R"(
#include "codec/window/kernel.cuh"
)";
constexpr const char* raw_include = R"(
#include "codec/raw/kernel.cuh"
)";
constexpr const char* program_include = R"(
#include "executor/cuda/generated/plan_kernel.cuh"
)";
constexpr const char* move_include = R"(
#include "executor/cuda/blocks/move.cuh"
)";
constexpr const char* reduce_include = R"(
#include "executor/cuda/blocks/reduce.cuh"
)";

// Upper bounds of the sizes in plan_kernel.cuh, which asserts them.
constexpr size_t max_scratch_bytes = 512, sender_bytes = 48, receiver_bytes = 40, queue_bytes = 8 * 16 + 8;
size_t shared_bytes(uint32_t workers, uint32_t block_bytes, size_t senders, size_t receivers) {
  const size_t warp = 3 * size_t{block_bytes} + 128 + max_scratch_bytes;
  const size_t ends = (senders + 1) * sender_bytes + (receivers + 1) * receiver_bytes + 8;
  return workers * (warp + ends + queue_bytes) + 256;
}

bool is_payload(const Place& place) { return place.packets && place.coded; }
// Whether a reduction has at least so many of these sources.
template <typename IsSuch>
bool has_reduction_of(const Program& program, std::ptrdiff_t least, IsSuch is_such) {
  for (const RankProgram& rank : program.ranks)
    for (const GroupProgram& group : rank.groups)
      for (const Item& item : group.items)
        if (item.kind == Item::Kind::reduce && std::ranges::count_if(item.from, is_such) >= least) return true;
  return false;
}

using Items = std::vector<std::vector<std::vector<ItemCode>>>;  // by rank and group
bool has_item_that_loads_ahead(const Items& items, ItemHead::Next what) {
  for (const auto& rank : items)
    for (const auto& group : rank)
      if (std::ranges::any_of(group, [&](const ItemCode& item) { return ItemHead{item.head[0]}.next() == what; }))
        return true;
  return false;
}

// The struct Settings, see plan_warp.cuh, and the type of the warps.
std::string settings_text(const Program& program, const Items& items, uint32_t workers, size_t senders,
                          size_t receivers) {
  std::string out = "struct Settings {\n";
  out += text("  using Codec = codec::%s<%s>;\n",
              program.codec != NCAST_CODEC_RAW ? "window::SharedCodec" : "raw::Codec", name_of(program.dtype).c_str());
  out += text("  static constexpr ncast_dtype dtype = %s;\n", name_of(program.dtype).c_str());
  out += text("  static constexpr ncast_redop op = %s;\n", name_of(program.op));
  out += text("  using Ends = WarpEnds<%zu, %zu>;\n", senders, receivers);
  out += text("  static constexpr uint32_t rings = %u, workers = %u, scratch_copies = %u;\n", program.rings, workers,
              program.scratch_copies);
  const bool counts_calls =
      program.accesses_peers || program.scratch_copies != 1 ||
      std::ranges::any_of(program.ranks, [](const RankProgram& rank) { return rank.points != 0; });
  out += text("  static constexpr bool has_one_chunk = %s, announces_buffers = %s, counts_calls = %s;\n",
              boolean(program.chunks == 1), boolean(program.accesses_peer_buffers), boolean(counts_calls));
  const auto reduces = [&](std::ptrdiff_t least, auto is_such) {
    return boolean(has_reduction_of(program, least, is_such));
  };
  out += text("  static constexpr bool reduces_messages = %s, reduces_locals = %s;\n",
              reduces(2, [](const Place& from) { return from.kind == Place::Kind::message; }),
              reduces(2, [](const Place& from) { return from.kind == Place::Kind::local && !is_payload(from); }));
  out += text("  static constexpr bool reduces_remote = %s, reduces_packets = %s;\n",
              reduces(1, [](const Place& from) { return from.kind == Place::Kind::remote && !is_payload(from); }),
              reduces(1, is_payload));
  const auto loads_ahead = [&](ItemHead::Next what) { return boolean(has_item_that_loads_ahead(items, what)); };
  out += text("  static constexpr bool loads_chunks_ahead = %s, loads_messages_ahead = %s;\n",
              loads_ahead(ItemHead::chunk), loads_ahead(ItemHead::message));
  out += "};\nusing Warp = PlanWarp<Settings>;\n";
  return out;
}

// The tables of the ranks' groups: words of all groups, the program and the first word of each group, and how many
// groups each rank has.
std::string tables_text(const std::vector<uint32_t>& words, const std::string& groups, const std::string& counts) {
  std::string out;
  // Tables that do not fit into constant memory are in global memory.
  const char* const space = words.size() * sizeof(uint32_t) > (size_t{32} << 10) ? "__device__ const" : "__constant__";
  out += text("%s uint32_t table[] = {", space);
  for (size_t i = 0; i < words.size(); ++i) out += text("%s0x%x,", i % 12 == 0 ? "\n  " : " ", words[i]);
  out += "\n};\nstruct GroupOf {\n  uint32_t program, table;\n};\n";
  out += text("%s GroupOf groups[] = {", space) + groups + "\n};\n";
  out += "__constant__ uint32_t group_counts[] = {" + counts + "};\n\n";
  return out;
}

// The kernel: each warp runs the program of its group.
std::string kernel_text(uint32_t threads, uint32_t groups, size_t ends, size_t programs) {
  std::string out;
  out += text("extern \"C\" __global__ void __launch_bounds__(%u, 1) %s(const __grid_constant__ PlanCall call) {\n",
              threads, block_kernel);
  out += text("  const GroupOf* const of_rank = groups + call.peers.rank * %u;\n", groups);
  out += text("  const auto ends = [&](uint32_t group) { return table + of_rank[group].table; };\n");
  out += "  run_plan<Settings>(call, group_counts[call.peers.rank], ends, [&](Warp& w, uint32_t group) {\n";
  out += text("    const uint32_t* const p = ends(group) + %zu;\n", ends);
  if (programs == 1) {
    out += "    return program_0(w, p);\n";
  } else {
    out += "    switch (of_rank[group].program) {\n";
    for (size_t i = 0; i + 1 < programs; ++i) out += text("      case %zu: return program_%zu(w, p);\n", i, i);
    out += text("      default: return program_%zu(w, p);\n    }\n", programs - 1);
  }
  out += "  });\n}\n\n}  // namespace narrowcast::executor::cuda::generated\n";
  return out;
}

}  // namespace

void generate_pieces(const Program& program, PieceProgram pieces, BlockSource* source) {
  const bool is_coded = program.codec != NCAST_CODEC_RAW, reduces = pieces.reduces;
  const uint32_t block_bytes = program.block_bytes;
  // Kernels that only move raw values treat them as bytes.
  const ncast_dtype dtype = is_coded || reduces ? program.dtype : NCAST_INT8;
  if (reduces) {
    source->warps = select::reduce_warps(block_bytes, ncast_dtype_bytes(dtype));
    source->shared_bytes =
        shared_bytes(select::reduce_rings(source->warps), block_bytes, channel::max_gpu_ranks, channel::max_gpu_ranks);
  } else {
    const select::MoveWarps warps = select::move_warps(block_bytes);
    source->warps = warps.all();
    source->shared_bytes = shared_bytes(warps.senders + warps.receivers, block_bytes, 0, 0);
  }
  source->pieces = std::move(pieces);

  std::string& out = source->text;
  if (is_coded) out += window_include;
  out += raw_include;
  out += reduces ? reduce_include : move_include;
  out += "\nnamespace narrowcast::executor::cuda::generated {\n\n";
  out +=
      text("using Codec = codec::%s<%s>;\n", is_coded ? "window::SharedCodec" : "raw::Codec", name_of(dtype).c_str());
  out += text("static_assert(sizeof(%s<Codec>) <= %zu);\n\n", reduces ? "ReduceMemory" : "MoveMemory",
              source->shared_bytes);
  const std::string bounds = reduces ? text("__launch_bounds__(%u, 1)", source->warps * 32)
                                     : text("__maxnreg__(%u)", select::most_move_registers(block_bytes));
  out +=
      "extern \"C\" __global__ void " + bounds + " " + block_kernel + "(const __grid_constant__ BlockCall call) {\n  ";
  out +=
      reduces ? text("reduce_pieces_by_cta<Codec, %s>(call)", name_of(program.op)) : "move_pieces<Codec, false>(call)";
  out += ";\n}\n\n}  // namespace narrowcast::executor::cuda::generated\n";
}

ncast_status generate_blocks(const Program& program, BlockSource* source) {
  if (program.codec != NCAST_CODEC_RAW && program.codec != NCAST_CODEC_WINDOW)
    return fail(NCAST_UNSUPPORTED, "generated kernels do not support the codec %s",
                codec::describe(program.codec).c_str());
  std::vector<std::vector<Ends>> ends;
  size_t senders = 0, receivers = 0;
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    std::vector<Ends>& of_rank = ends.emplace_back();
    for (uint32_t group = 0; group < program.ranks[static_cast<size_t>(rank)].groups.size(); ++group) {
      of_rank.push_back(find_ends(program, rank, group));
      senders = std::max(senders, of_rank.back().sending.size());
      receivers = std::max(receivers, of_rank.back().receiving.size());
    }
  }
  if (senders > 31 || receivers > 31)
    return fail(NCAST_UNSUPPORTED,
                "a group of the plan uses %zu rings, but a warp of a generated kernel has at most 31",
                std::max(senders, receivers));

  std::map<std::string, size_t> programs;  // number by body
  size_t lines = 0;
  ProgramLoop loop;
  Items items;
  std::vector<std::vector<StraightProgram>> straight;  // as items
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    auto& of_rank = items.emplace_back();
    straight.emplace_back();
    for (size_t group = 0; group < ends[rank].size(); ++group) {
      of_rank.push_back(
          code_of_group(program, static_cast<int>(rank), static_cast<uint32_t>(group), ends[rank][group]));
      const StraightProgram& made = straight[rank].emplace_back(straight_program(of_rank.back()));
      if (!programs.try_emplace(made.body, programs.size()).second) continue;
      lines += made.lines;
      loop.add(of_rank.back());
    }
  }
  // Long code takes long to compile, and competes for instruction caches.
  const bool is_loop = lines >= 2 * loop.lines();
  if (is_loop) programs = {{loop.body(), 0}};

  std::string group_table, counts;
  std::vector<uint32_t> words;
  const uint32_t groups = program.groups();
  for (size_t rank = 0; rank < items.size(); ++rank) {
    counts += text("%s%zu", rank == 0 ? "" : ", ", items[rank].size());
    group_table += "\n ";
    for (uint32_t group = 0; group < groups; ++group) {
      if (group >= items[rank].size()) {
        group_table += " {0, 0},";
        continue;
      }
      group_table += text(" {%zu, %zu},", is_loop ? size_t{0} : programs.at(straight[rank][group].body), words.size());
      const auto add_ends = [&](const std::vector<std::pair<int, uint32_t>>& held, size_t count) {
        for (size_t i = 0; i < count; ++i)
          words.push_back(i < held.size() ? EndRef::of(held[i].first, held[i].second).word : EndRef::none);
      };
      add_ends(ends[rank][group].sending, senders);
      add_ends(ends[rank][group].receiving, receivers);
      std::ranges::copy(is_loop ? loop.words(items[rank][group]) : straight[rank][group].words,
                        std::back_inserter(words));
    }
  }
  std::vector<std::string> bodies(programs.size());
  for (const auto& [body, number] : programs) bodies[number] = body;

  // Without sums a thread needs fewer registers, so a CTA can have more warps; see select/block_shape.h.
  const uint32_t most_workers =
      program.reduces
          ? select::reduce_rings(select::reduce_warps(program.block_bytes, ncast_dtype_bytes(program.dtype)))
          : select::move_warps(program.block_bytes).senders + select::move_warps(program.block_bytes).receivers;
  source->workers = most_workers;
  while (source->workers > 1 &&
         shared_bytes(source->workers, program.block_bytes, senders, receivers) > select::most_shared_bytes)
    --source->workers;
  source->shared_bytes = shared_bytes(source->workers, program.block_bytes, senders, receivers);
  source->warps = source->workers + 1;

  const bool is_coded = program.codec != NCAST_CODEC_RAW;
  std::string& out = source->text;
  out = text("// Generated by Narrowcast from a plan of %s for %d ranks.\n", operation::name_of(program.operation),
             program.rank_count());
  if (is_coded) out += window_include;
  out += raw_include;
  out += program_include;
  out += "\nnamespace narrowcast::executor::cuda::generated {\nnamespace {\n\n";
  out += settings_text(program, items, source->workers, senders, receivers);
  out += text("static_assert(sizeof(PlanMemory<Settings>) <= %zu);\n\n", source->shared_bytes);
  out += tables_text(words, group_table, counts);
  for (size_t i = 0; i < bodies.size(); ++i) {
    out += text("__device__ __forceinline__ bool program_%zu(Warp& w, const uint32_t* p) {\n", i);
    out += text("  for (w.begin(); w.has_turn(%d); w.next_turn()) {\n", program.stages);
    out += bodies[i] + "  }\n  return true;\n}\n";
  }
  out += "\n}  // namespace\n\n";
  out += kernel_text(source->warps * 32, groups, senders + receivers, bodies.size());
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda::generated
