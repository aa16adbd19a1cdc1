// Executes gather kernels on the host (machine.h), and compares what they read with the rows of a table.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "executor/cuda/generated/simt/cuda.h"
#include "executor/cuda/generated/simt/machine.h"
#include "store/cuda/gather.cuh"
#include "store/cuda/gather_table.h"
#include "store/cuda/kernel_choice.h"
#include "store/cuda/order_arguments.h"
#include "store/cuda/slice_chunk.h"
#include "store/cuda/window_row.cuh"

namespace narrowcast::store::cuda::test {

using Kernel = std::function<void(const GatherArguments&)>;
// The variants of a kernel: without a cache, and with one.
struct CacheVariants {
  Kernel uncached, cached;

  explicit operator bool() const { return uncached != nullptr; }
};
template <typename Coder>
CacheVariants variants_of() {
  return {[](const GatherArguments& arguments) { gather<Coder, false>(arguments, simt::shared_memory()); },
          [](const GatherArguments& arguments) { gather<Coder, true>(arguments, simt::shared_memory()); }};
}
struct Kernels {
  CacheVariants for_warps, for_teams, for_lanes, for_twos, for_eights;
};
template <typename Coder>
Kernels kernels_of() {
  return {variants_of<Coder>(), {}, {}, {}, {}};
}
template <window::ValueType Type>
Kernels window_kernels() {
  Kernels kernels = {variants_of<WindowRow<Type>>(), variants_of<WindowRow<Type, Team>>(), {}, {}, {}};
  if constexpr (std::is_same_v<WindowRow<Type>, WindowRow<window::bfloat16>>) {
    kernels.for_lanes = variants_of<WindowRow<Type, LaneRows>>();
    kernels.for_twos = variants_of<WindowRow<Type, TwoLanes>>();
    kernels.for_eights = variants_of<WindowRow<Type, EightLanes>>();
  }
  return kernels;
}

// A codec of rows: everything that a kernel needs besides the table.
struct Codec {
  std::string name;
  Kernels kernels;
  RowFormat format = {};
  CoderFormat coder = {};
  uint32_t staged_bytes = 0;  // 0: not coded
  bool has_only_map = false;
};

struct Call {
  uint32_t index_bytes = 8;
  bool is_ordered = false;
  uint64_t out_shift = 0, out_gap = 0;  // bytes
  uint64_t seed = 1;
  std::function<void()> writer = nullptr;  // a warp that changes the table meanwhile
};

class Reader {
 public:
  Reader(const Codec& codec, Table& table) : codec_(codec), table_(table) {
    ShapeInput& input = input_;
    input.elems = codec.format.elems;
    input.row_bytes = codec.format.row_bytes;
    input.is_coded = codec.staged_bytes != 0;
    input.has_only_map = codec.has_only_map;
    input.staged_bytes = codec.staged_bytes;
    input.has_teams = codec.kernels.for_teams && codec.format.has_zeros == 0;
    input.has_lanes = codec.kernels.for_lanes && codec.format.has_zeros == 0 && codec.format.has_trim == 0;
    input.slot_bytes = table.slot_bytes();
    input.slot_alignment = table.stride == 0 ? table.unit : table.stride;
    input.far_bytes = static_cast<uint32_t>(table.entry_stride);
    arguments_.format = codec.format;
    arguments_.coder = codec.coder;
    arguments_.state = {table.rows.size(), table.entry_count != 0};
    arguments_.counters = &counters_;
    arguments_.shape = shape_ = gather_shape(input, shared_bytes);
    ShapeInput staged = input;
    staged.is_staged = true;
    staged_shape_ = gather_shape(staged, shared_bytes);
    REQUIRE(arguments_.shape.warps != 0);
  }

  void gather(const std::vector<int64_t>& indices, const Call& call) {
    Output output(*this, indices.size(), call);
    std::vector<int32_t> narrow(indices.begin(), indices.end());
    std::vector<uint64_t> entries(indices.size());
    for (uint32_t i = 0; i < entries.size(); ++i)
      entries[i] = entry_of(static_cast<uint32_t>(std::min(static_cast<uint64_t>(indices[i]), max_ordered_rows)), i);
    std::mt19937_64 random(call.seed);
    std::ranges::shuffle(entries, random);

    select(indices, output);
    Selection& selection = arguments_.selection;
    selection.indices = call.index_bytes == 8 ? static_cast<const void*>(indices.data()) : narrow.data();
    selection.index_bytes = call.index_bytes;
    selection.entries = call.is_ordered ? entries.data() : nullptr;
    run(call);
    check(indices, output, 0);
  }

  // Gathers rows of which most are in a cache, whose slots have slot_bytes, or come into it. Returns how many could not
  // be decoded there.
  uint64_t gather_cached(const std::vector<int64_t>& indices, uint64_t slot_bytes, const Call& call) {
    Output output(*this, indices.size(), call);
    std::mt19937_64 random(call.seed);
    // Rows of the table by way; some ways have none.
    std::vector<int64_t> rows(table_.rows.size() + 4);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    std::ranges::shuffle(rows, random);
    Pages cached(rows.size() * slot_bytes + 16);
    std::vector<uint64_t> entries(3, no_entry), retries(indices.size() + 1);
    std::vector<int32_t> fill_ways(indices.size() + 1, -1), held(rows.size());
    uint32_t retry_count = 0;
    const auto compare = [&](size_t way) {
      const auto [begin, bytes] = table_.slot(static_cast<size_t>(rows[way]));
      CHECK(std::memcmp(cached.at(way * slot_bytes), table_.slots.at(begin), std::min(bytes, slot_bytes)) == 0);
      for (uint64_t i = bytes; i < slot_bytes; ++i) CHECK(*cached.at(way * slot_bytes + i) == 0);
    };
    for (uint32_t way = 0; way < rows.size() * 3 / 4; ++way) {
      if (static_cast<size_t>(rows[way]) >= table_.rows.size() || table_.is_moved(static_cast<size_t>(rows[way])))
        continue;
      const auto [begin, bytes] = table_.slot(static_cast<size_t>(rows[way]));
      std::memcpy(cached.at(way * slot_bytes), table_.slots.at(begin), std::min(bytes, slot_bytes));
    }
    std::memset(cached.at(rows.size() * 3 / 4 * slot_bytes), 0xee, rows.size() / 4 * slot_bytes);
    std::set<uint32_t> filled;
    for (uint32_t i = 0; i < indices.size(); ++i) {
      uint32_t number = static_cast<uint32_t>(std::min(static_cast<uint64_t>(indices[i]), max_ordered_rows));
      const auto row = static_cast<size_t>(indices[i]);
      if (row < table_.rows.size()) {
        const auto way = static_cast<uint32_t>(std::ranges::find(rows, indices[i]) - rows.begin());
        if (way < rows.size() * 3 / 4)
          number = table_.is_moved(row) ? number : cached_row + way;
        else if (filled.insert(way).second)
          fill_ways[i] = static_cast<int32_t>(way);
      } else {
        number = no_row;
      }
      entries.push_back(entry_of(number, i));
    }
    std::ranges::shuffle(entries, random);

    select(indices, output);
    ShapeInput input = input_;
    input.slot_bytes = std::max(input.slot_bytes, static_cast<uint32_t>(slot_bytes));
    input.slot_alignment = (input.slot_alignment | slot_bytes) & -(input.slot_alignment | slot_bytes);
    input.has_cache = true;
    arguments_.shape = gather_shape(input, shared_bytes);
    Selection& selection = arguments_.selection;
    selection.indices = indices.data();
    selection.index_bytes = 8;
    selection.entries = entries.data();
    selection.count = entries.size();
    const uint64_t common = input.slot_alignment | slot_bytes;
    const uint32_t has_redirects = arguments_.state.has_redirects;
    uint32_t older = 0;
    selection.cached = {cached.at(),
                        static_cast<uint32_t>(slot_bytes),
                        static_cast<uint32_t>(rows.size()),
                        common % 16 == 0  ? 16u
                        : common % 4 == 0 ? 4u
                                          : 1u,
                        held.data(),
                        &has_redirects,
                        fill_ways.data(),
                        retries.data(),
                        &retry_count};
    // The state of the call may be older.
    std::swap(arguments_.state.has_redirects, older);
    run(call);
    std::swap(arguments_.state.has_redirects, older);
    for (const uint32_t way : filled) {
      const bool is_moved = table_.is_moved(static_cast<size_t>(rows[way]));
      CHECK(held[way] == (is_moved ? -1 : 0));
      if (!is_moved) compare(way);
    }
    selection.entries = retries.data();
    selection.device_count = &retry_count;
    selection.cached = {};
    arguments_.shape = shape_;
    run(call);
    check(indices, output, retry_count);
    return retry_count;
  }
  uint64_t corrupt_rows = 0;  // expected
  bool has_teams() const { return arguments_.shape.team_warps > 1; }

  // Reads all rows as a slice: from copies of chunks in the buffers of the ring, one after another.
  void fetch(uint64_t seed) {
    constexpr uint64_t buffers = 3;
    const uint64_t most_bytes = 8 * table_.entry_stride + 32;
    constexpr uint64_t buffer_bytes = most_copied + chunk_margin;
    static Pages ring(buffers * buffer_bytes);
    ReaderTable table = {};
    table.stride = table_.stride;
    table.offsets = table_.offsets.data();
    table.unit_bytes = table_.unit;
    const uint64_t row_bytes = codec_.format.row_bytes, rows = table_.rows.size();
    Pages out(rows * row_bytes);
    for (uint64_t row = 0, buffer = 0; row < rows; ++buffer) {
      const SliceChunk chunk = slice_chunk(table, row, rows, most_bytes);
      char* const copied = ring.at(buffer % buffers * buffer_bytes);
      std::memcpy(copied, table_.slots.at(chunk.begin), chunk.bytes);
      arguments_.places = table_.places();
      arguments_.places.slots = copied - chunk.begin;
      arguments_.shape = staged_shape_;
      arguments_.places.is_staged = table_.is_coded && is_dense(staged_shape_, table_.stride, table_.unit) ? 1 : 0;
      Selection& selection = arguments_.selection;
      selection = {};
      selection.first = row;
      selection.step = 1;
      selection.count = chunk.next - row;
      selection.out = out.at(row * row_bytes);
      selection.out_stride = row_bytes;
      run({.seed = seed + buffer});
      row = chunk.next;
    }
    for (uint64_t row = 0; row < rows; ++row) {
      const bool equal = std::memcmp(out.at(row * row_bytes), table_.rows[row].data(), row_bytes) == 0;
      CHECK_MESSAGE(equal, codec_.name << ", row " << row << " of a slice");
    }
    counters_ = {};
  }

 private:
  static constexpr size_t shared_bytes = 200 << 10;

  // Where rows go. The bytes between them have a value of their own.
  struct Output {
    Output(const Reader& reader, size_t rows, const Call& call)
        : shift(call.out_shift),
          gap(call.out_gap),
          stride(reader.codec_.format.row_bytes + gap),
          memory(shift + stride * rows + 16) {
      std::memset(memory.at(), 0xee, shift + stride * rows + 16);
    }
    uint64_t shift, gap, stride;
    Pages memory;
  };
  void select(const std::vector<int64_t>& indices, Output& output) {
    arguments_.places = table_.places();
    arguments_.shape = shape_;
    Selection& selection = arguments_.selection;
    selection = {};
    selection.count = indices.size();
    selection.out = output.memory.at(output.shift);
    selection.out_stride = output.stride;
  }
  // retried: rows that were read twice.
  void check(const std::vector<int64_t>& indices, Output& output, uint64_t retried) {
    const uint64_t row_bytes = codec_.format.row_bytes;
    const char* const begin = output.memory.at(output.shift);
    uint64_t bad = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      const bool exists = indices[i] >= 0 && static_cast<uint64_t>(indices[i]) < table_.rows.size();
      bad += exists ? 0 : 1;
      const Bytes zeros(row_bytes);
      const Bytes& expected = exists ? table_.rows[static_cast<size_t>(indices[i])] : zeros;
      const bool equal = std::memcmp(begin + i * output.stride, expected.data(), row_bytes) == 0;
      CHECK_MESSAGE(equal, codec_.name << ", row " << indices[i] << " at " << i);
      for (uint64_t gap = 0; gap < output.gap; ++gap)
        CHECK(static_cast<uint8_t>(begin[i * output.stride + row_bytes + gap]) == 0xee);
    }
    for (uint64_t i = 0; i < output.shift; ++i) CHECK(static_cast<uint8_t>(output.memory.at()[i]) == 0xee);
    CHECK(counters_.bad_indices == bad);
    CHECK(counters_.rows == indices.size() - bad + retried);
    CHECK(counters_.corrupt_rows == corrupt_rows);
    counters_ = {};
  }
  void run(const Call& call) {
    const auto odd = reinterpret_cast<uintptr_t>(arguments_.selection.out) | arguments_.selection.out_stride |
                     codec_.format.row_bytes | (codec_.staged_bytes == 0 ? table_.stride : 0) | 16;
    arguments_.selection.unit_bytes = static_cast<uint32_t>(odd & -odd);
    simt::Machine machine(call.seed);
    const GatherShape& shape = arguments_.shape;
    const uint32_t teams = std::min(shape.warps / shape.team_warps, 2u);
    const bool has_stages = codec_.format.has_zeros != 0 || codec_.format.has_trim != 0;
    const CacheVariants& variants = function_for(codec_.kernels, shape, has_stages);
    const Kernel& kernel = arguments_.selection.cached.slots != nullptr ? variants.cached : variants.uncached;
    machine.launch(2, teams * shape.team_warps, taken_bytes + teams * shape.team_bytes, [&] { kernel(arguments_); });
    if (call.writer) machine.launch(1, 1, 0, call.writer);
    REQUIRE_MESSAGE(machine.run(), codec_.name << " does not end");
  }

  const Codec& codec_;
  Table& table_;
  GatherCounters counters_ = {};
  GatherArguments arguments_ = {};
  ShapeInput input_ = {};
  GatherShape shape_ = {}, staged_shape_ = {};
};

}  // namespace narrowcast::store::cuda::test
