#include "store/rows/fit_invariant.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "store/rows/bit_counter.h"
#include "store/rows/load.h"
#include "store/rows/zero_map.h"
#include "threads/parallel.h"

namespace narrowcast::store {
namespace {

using RowNumbers = std::vector<uint32_t>;

// Rows that the fit looks at, and rounds of assigning rows to clusters. More of either gains less than 0.1%.
constexpr uint64_t most_rows = 1024;
constexpr int rounds = 4;
// Encoders try all clusters for every row, which is worth a part of the bits.
constexpr double least_gain = 1.0 / 256;

// A thread fits the chunks of one block of a row at a time, and assigns some rows.
constexpr uint64_t block_bytes = 64;
constexpr size_t task_rows = 64;

RowNumbers fitted_rows(const Sample& sample) {
  const uint64_t count = std::min(sample.count, most_rows);
  RowNumbers rows(count);
  for (uint64_t i = 0; i < count; ++i) rows[i] = static_cast<uint32_t>(i * sample.count / count);
  return rows;
}

// The masks and values of one cluster.
struct Masks {
  std::vector<uint8_t> mask, values;
  std::vector<uint8_t> saved;  // by chunk: bits of the mask that the trim leaves
};

// The stages before the coder.
struct Stages {
  bool has_zeros;
  TrimPattern trim;

  bool is_present(uint64_t chunk) const { return !has_zeros || chunk != 0; }
  // The bits of the chunk at this place that are trimmed, and their values.
  template <typename Chunk>
  Chunk trimmed(uint64_t at) const {
    return static_cast<Chunk>(trim.bits >> at % 8 * 8);
  }
  template <typename Chunk>
  Chunk trimmed_values(uint64_t at) const {
    return static_cast<Chunk>(trim.values >> at % 8 * 8);
  }
};

// The best mask of one chunk: orders the bits by how many rows share them and takes the first k, where k x (rows that
// agree in all of them) is largest. The trimmed bits come first and save nothing.
template <typename Chunk>
class ChunkFit {
 public:
  static constexpr uint32_t bits = 8 * sizeof(Chunk);

  // ones: of `rows` rows, by bit.
  void order_bits(const uint64_t* ones, uint64_t rows, Chunk trimmed, Chunk trimmed_values) {
    rows_ = static_cast<uint32_t>(rows);
    trimmed_ = static_cast<uint32_t>(std::popcount(trimmed));
    std::array<uint32_t, bits> order;
    std::iota(order.begin(), order.end(), 0);
    const auto agreeing = [&](uint32_t bit) {
      return (trimmed >> bit & 1) != 0 ? rows + 1 : std::max(ones[bit], rows - ones[bit]);
    };
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(agreeing(b), a) < std::pair(agreeing(a), b); });
    for (uint32_t bit = 0; bit < bits; ++bit)
      if (2 * ones[bit] > rows) majority_ = static_cast<Chunk>(majority_ | Chunk{1} << bit);
    majority_ = static_cast<Chunk>((majority_ & ~trimmed) | trimmed_values);
    for (uint32_t k = 0; k < bits; ++k) first_[k + 1] = static_cast<Chunk>(first_[k] | Chunk{1} << order[k]);
  }
  void add(Chunk chunk) {
    const auto differs = static_cast<Chunk>(chunk ^ majority_);
    // In how many of the bits the chunk agrees before the first in which it does not.
    uint32_t agrees = 0;
    for (uint32_t step = bits / 2; step != 0; step /= 2) agrees += (differs & first_[agrees + step]) == 0 ? step : 0;
    agrees += (differs & first_[agrees + 1]) == 0 ? 1 : 0;
    ++first_difference_[agrees];
  }
  void finish(uint8_t* mask, uint8_t* values) const {
    uint64_t most_saved = 0;
    uint32_t best = trimmed_, agree = rows_;
    for (uint32_t k = trimmed_ + 1; k <= bits; ++k) {
      agree -= first_difference_[k - 1];
      const uint64_t saved = uint64_t{k - trimmed_} * agree;
      if (saved > most_saved) most_saved = saved, best = k;
    }
    const auto value = static_cast<Chunk>(majority_ & first_[best]);
    std::memcpy(mask, &first_[best], sizeof(Chunk));
    std::memcpy(values, &value, sizeof(Chunk));
  }

 private:
  uint32_t rows_ = 0;
  uint32_t trimmed_ = 0;  // bits
  Chunk majority_ = 0;
  std::array<Chunk, bits + 1> first_{};                // [k]: the first k bits of the order
  std::array<uint32_t, bits + 1> first_difference_{};  // [k]: rows that agree in the first k bits and not in the next
};

// Row after row, because those of a sample are far from each other in memory.
template <typename Chunk>
void fit_block(const Sample& sample, const Stages& stages, const RowNumbers& rows, uint64_t begin, uint64_t end,
               Masks& masks) {
  constexpr size_t most_chunks = block_bytes / sizeof(Chunk);
  const size_t chunks = (end - begin) / sizeof(Chunk);
  std::array<BitCounter, block_bytes / 8> counters;
  for (const uint32_t row : rows)
    for (uint64_t at = begin; at < end; at += 8) counters[(at - begin) / 8].add(load8(sample.row(row) + at, end - at));
  std::array<uint32_t, most_chunks> absent{};
  if (stages.has_zeros)
    for (const uint32_t row : rows)
      for (size_t i = 0; i < chunks; ++i) absent[i] += load<Chunk>(sample.row(row) + begin + i * sizeof(Chunk)) == 0;
  std::array<ChunkFit<Chunk>, most_chunks> fits;
  for (size_t i = 0; i < chunks; ++i) {
    const size_t bit = i * ChunkFit<Chunk>::bits;
    const uint64_t at = begin + i * sizeof(Chunk);
    fits[i].order_bits(counters[bit / 64].counts().data() + bit % 64, rows.size() - absent[i],
                       stages.trimmed<Chunk>(at), stages.trimmed_values<Chunk>(at));
  }
  for (const uint32_t row : rows)
    for (size_t i = 0; i < chunks; ++i) {
      const auto chunk = load<Chunk>(sample.row(row) + begin + i * sizeof(Chunk));
      if (stages.is_present(chunk)) fits[i].add(chunk);
    }
  for (size_t i = 0; i < chunks; ++i) {
    const uint64_t at = begin + i * sizeof(Chunk);
    fits[i].finish(&masks.mask[at], &masks.values[at]);
    masks.saved[at / sizeof(Chunk)] =
        static_cast<uint8_t>(std::popcount(load<Chunk>(&masks.mask[at])) - std::popcount(stages.trimmed<Chunk>(at)));
  }
}

template <typename Chunk>
Masks fit_masks(const Sample& sample, const Stages& stages, const RowNumbers& rows, threads::Team& team) {
  Masks masks{std::vector<uint8_t>(sample.row_bytes), std::vector<uint8_t>(sample.row_bytes),
              std::vector<uint8_t>(sample.row_bytes / sizeof(Chunk))};
  team.for_each((sample.row_bytes + block_bytes - 1) / block_bytes, [&](size_t block) {
    const uint64_t begin = block * block_bytes;
    fit_block<Chunk>(sample, stages, rows, begin, std::min(begin + block_bytes, sample.row_bytes), masks);
  });
  return masks;
}

template <typename Chunk>
uint64_t saved_bits(const uint8_t* row, const Stages& stages, const Masks& masks) {
  const uint8_t* const mask = masks.mask.data();
  const uint8_t* const values = masks.values.data();
  uint32_t saved = 0;
  for (size_t i = 0; i < masks.saved.size(); ++i) {
    const size_t at = i * sizeof(Chunk);
    const auto chunk = load<Chunk>(row + at);
    const bool participates = (chunk & load<Chunk>(mask + at)) == load<Chunk>(values + at);
    saved += participates && stages.is_present(chunk) ? masks.saved[i] : 0;
  }
  return saved;
}

uint64_t distance(const uint8_t* a, const uint8_t* b, uint64_t bytes) {
  uint64_t bits = 0;
  for (uint64_t at = 0; at < bytes; at += 8)
    bits += static_cast<uint64_t>(std::popcount(load8(a + at, bytes - at) ^ load8(b + at, bytes - at)));
  return bits;
}

// Calls work(i) for all numbers below `count`, on several threads.
template <typename Work>
void for_each_row(size_t count, threads::Team& team, Work work) {
  team.for_each((count + task_rows - 1) / task_rows, [&](size_t task) {
    for (size_t i = task * task_rows; i < std::min(count, (task + 1) * task_rows); ++i) work(i);
  });
}

// Rows as the stages leave them.
struct StagedRows {
  RowNumbers numbers;     // of those that follow the trim
  uint64_t uncoded_bits;  // of all payloads, with what precedes the fields, if masks save nothing
};

template <typename Chunk>
StagedRows stage_rows(const Sample& sample, const Stages& stages, const RowNumbers& rows, threads::Team& team) {
  const uint64_t chunks = sample.row_bytes / sizeof(Chunk);
  if (!stages.has_zeros && stages.trim.bits == 0) return {rows, rows.size() * (8 * sample.row_bytes + chunks)};
  std::array<uint32_t, 8> coded{};  // by place mod 8: the bits of a chunk, with the participation bit
  for (size_t at = 0; at < 8; at += sizeof(Chunk))
    coded[at] = 1 + static_cast<uint32_t>(ChunkFit<Chunk>::bits - std::popcount(stages.trimmed<Chunk>(at)));
  std::vector<uint64_t> bits_of(rows.size());  // 0: stored raw
  for_each_row(rows.size(), team, [&](size_t i) {
    const uint8_t* const row = sample.row(rows[i]);
    uint64_t bits = stages.has_zeros ? chunks : 0;
    bool follows = true;
    for (uint64_t at = 0; at < sample.row_bytes; at += sizeof(Chunk)) {
      const auto chunk = load<Chunk>(row + at);
      if (!stages.is_present(chunk)) continue;
      follows &= (chunk & stages.trimmed<Chunk>(at)) == stages.trimmed_values<Chunk>(at);
      bits += coded[at % 8];
    }
    bits_of[i] = follows ? bits : 0;
  });
  StagedRows staged{{}, 0};
  for (size_t i = 0; i < rows.size(); ++i) {
    if (bits_of[i] != 0) staged.numbers.push_back(rows[i]);
    staged.uncoded_bits += bits_of[i] != 0 ? bits_of[i] : 8 * sample.row_bytes;
  }
  return staged;
}

// Rows far from each other: each next one is the farthest from those before. Assigns every row to the nearest.
std::vector<RowNumbers> seed_clusters(const Sample& sample, const RowNumbers& rows, uint32_t clusters,
                                      threads::Team& team) {
  std::vector<uint64_t> nearest(rows.size(), ~uint64_t{0});
  std::vector<uint32_t> assigned(rows.size(), 0);
  uint32_t seed = rows[rows.size() / 2];
  uint32_t used = 0;
  for (uint32_t cluster = 0; cluster < clusters; ++cluster, ++used) {
    for_each_row(rows.size(), team, [&](size_t i) {
      const uint64_t bits = distance(sample.row(rows[i]), sample.row(seed), sample.row_bytes);
      if (bits < nearest[i]) nearest[i] = bits, assigned[i] = cluster;
    });
    const auto farthest = std::ranges::max_element(nearest);
    if (*farthest == 0) {
      ++used;
      break;
    }
    seed = rows[static_cast<size_t>(farthest - nearest.begin())];
  }
  std::vector<RowNumbers> members(used);
  for (size_t i = 0; i < rows.size(); ++i) members[assigned[i]].push_back(rows[i]);
  return members;
}

struct Fit {
  std::vector<Masks> clusters;
  double bits;  // of all payloads
};

double header_bits(uint64_t clusters) { return clusters < 2 ? 0 : static_cast<double>(std::bit_width(clusters - 1)); }

struct Assignment {
  uint64_t saved = 0;
  size_t cluster = 0;
};

// Assigns rows to clusters. Returns the bits of all payloads.
template <typename Chunk>
double assign(const Sample& sample, const Stages& stages, const StagedRows& rows, const std::vector<Masks>& clusters,
              threads::Team& team, std::vector<Assignment>& assignments) {
  const size_t count = rows.numbers.size();
  assignments.resize(count);
  for_each_row(count, team, [&](size_t i) {
    Assignment best;
    for (size_t cluster = 0; cluster < clusters.size(); ++cluster) {
      const uint64_t bits = saved_bits<Chunk>(sample.row(rows.numbers[i]), stages, clusters[cluster]);
      if (bits > best.saved) best = {bits, cluster};
    }
    assignments[i] = best;
  });
  uint64_t saved = 0;
  for (const Assignment& of_row : assignments) saved += of_row.saved;
  return static_cast<double>(rows.uncoded_bits - saved) + static_cast<double>(count) * header_bits(clusters.size());
}

// members: of the clusters, to begin with. The result is judged by `others`, if there are some: clusters suit the rows
// that they were fitted to better than others.
template <typename Chunk>
Fit fit_clusters(const Sample& sample, const Stages& stages, const StagedRows& rows, const StagedRows& others,
                 std::vector<RowNumbers> members, threads::Team& team) {
  for (RowNumbers& cluster : members)
    std::erase_if(cluster, [&](uint32_t row) { return !std::ranges::binary_search(rows.numbers, row); });
  Fit best{{}, 0};
  std::vector<Assignment> assignments;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Masks> masks;
    masks.reserve(members.size());
    for (const RowNumbers& cluster : members)
      if (!cluster.empty()) masks.push_back(fit_masks<Chunk>(sample, stages, cluster, team));
    // The trim suits none of the rows.
    if (masks.empty()) masks.push_back(fit_masks<Chunk>(sample, stages, {}, team));
    const double bits = assign<Chunk>(sample, stages, rows, masks, team, assignments);
    if (!best.clusters.empty() && bits >= best.bits) break;
    std::vector<RowNumbers> next(masks.size());
    for (size_t i = 0; i < assignments.size(); ++i) next[assignments[i].cluster].push_back(rows.numbers[i]);
    best = {std::move(masks), bits};
    if (members.size() == 1) break;
    members = std::move(next);
  }
  if (others.uncoded_bits != 0) best.bits = assign<Chunk>(sample, stages, others, best.clusters, team, assignments);
  return best;
}

}  // namespace

void fit_invariant(const Sample& sample, uint32_t chunk_bytes, uint32_t clusters, int threads, Model& model) {
  const RowNumbers rows = fitted_rows(sample);
  RowNumbers others;
  if (sample.count >= 2 * rows.size())
    for (const uint32_t row : rows) others.push_back(row + 1);

  const Stages stages{model.has_zeros, model.trim_pattern()};
  threads::Team team(threads::count_of(threads));
  std::vector<std::vector<RowNumbers>> beginnings{seed_clusters(sample, rows, clusters == 0 ? 1 : clusters, team)};
  if (clusters == 0) beginnings.push_back(seed_clusters(sample, rows, tried_clusters, team));
  Fit best{{}, 0};
  const auto cost = [](const Fit& fit) { return fit.bits * (fit.clusters.size() > 1 ? 1 + least_gain : 1); };
  for (const uint32_t chunk : {4u, 8u, 2u, 1u}) {
    if ((chunk_bytes != 0 && chunk != chunk_bytes) || sample.row_bytes % chunk != 0) continue;
    with_elem(static_cast<int>(chunk), [&]<typename Chunk>() {
      const StagedRows of_rows = stage_rows<Chunk>(sample, stages, rows, team);
      const StagedRows of_others = stage_rows<Chunk>(sample, stages, others, team);
      for (const std::vector<RowNumbers>& members : beginnings) {
        Fit fit = fit_clusters<Chunk>(sample, stages, of_rows, of_others, members, team);
        if (!best.clusters.empty() && cost(fit) >= cost(best)) continue;
        best = std::move(fit);
        model.chunk_bytes = chunk;
      }
    });
  }

  model.clusters = static_cast<uint32_t>(best.clusters.size());
  for (const Masks& masks : best.clusters) {
    model.masks.insert(model.masks.end(), masks.mask.begin(), masks.mask.end());
    model.values.insert(model.values.end(), masks.values.begin(), masks.values.end());
  }
  find_whole_masks(model);
}

// Without the map, a chunk of zeros takes at most a participation bit and its own bits.
bool zero_map_can_save(const Sample& sample) {
  const RowNumbers rows = fitted_rows(sample);
  for (const uint32_t chunk : {4u, 8u, 2u, 1u}) {
    if (sample.row_bytes % chunk != 0) continue;
    uint64_t zeros = 0;
    with_elem(static_cast<int>(chunk), [&]<typename Chunk>() {
      for (const uint32_t row : rows)
        for (uint64_t at = 0; at < sample.row_bytes; at += chunk)
          zeros += load<Chunk>(sample.row(row) + at) == 0 ? 1 : 0;
    });
    if (zeros * (1 + 8 * chunk) >= rows.size() * (sample.row_bytes / chunk)) return true;
  }
  return false;
}

}  // namespace narrowcast::store
