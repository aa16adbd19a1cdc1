#include "store/rows/fit_invariant.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

namespace narrowcast::store {
namespace {

using RowNumbers = std::vector<uint32_t>;

// Rows that the fit looks at, and rounds of assigning rows to clusters. More of either gains less than 0.1%.
constexpr uint64_t most_rows = 1024;
constexpr int rounds = 4;
constexpr uint32_t tried_clusters = 8;

uint64_t load(const uint8_t* bytes, uint32_t count) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, count);
  return value;
}

// The masks and values of one cluster, and the bits that they save.
struct Masks {
  std::vector<uint8_t> mask, values;
};

// The best mask of one chunk: orders the bits by how many rows share them and takes the first k, where k x (rows that
// agree in all of them) is largest.
void fit_chunk(const Sample& sample, const RowNumbers& rows, uint64_t offset, uint32_t chunk_bytes, Masks& masks) {
  const uint32_t bits = 8 * chunk_bytes;
  std::array<uint32_t, 64> ones{};
  for (const uint32_t row : rows) {
    uint64_t chunk = load(sample.row(row) + offset, chunk_bytes);
    for (; chunk != 0; chunk &= chunk - 1) ++ones[static_cast<size_t>(std::countr_zero(chunk))];
  }
  const auto count = static_cast<uint32_t>(rows.size());
  uint64_t majority = 0;
  for (uint32_t bit = 0; bit < bits; ++bit)
    if (2 * ones[bit] > count) majority |= uint64_t{1} << bit;
  std::array<uint32_t, 64> order;
  std::iota(order.begin(), order.end(), 0);
  const auto agreeing = [&](uint32_t bit) { return std::max(ones[bit], count - ones[bit]); };
  std::sort(order.begin(), order.begin() + bits,
            [&](uint32_t a, uint32_t b) { return std::pair(agreeing(b), a) < std::pair(agreeing(a), b); });
  // first_difference[r]: rows that agree in the first r bits of the order and not in the next.
  std::array<uint32_t, 65> first_difference{};
  for (const uint32_t row : rows) {
    const uint64_t differs = load(sample.row(row) + offset, chunk_bytes) ^ majority;
    uint32_t rank = 0;
    while (rank < bits && (differs >> order[rank] & 1) == 0) ++rank;
    ++first_difference[rank];
  }
  uint64_t most_saved = 0;
  uint32_t best = 0, agree = count;
  for (uint32_t k = 1; k <= bits; ++k) {
    agree -= first_difference[k - 1];
    if (uint64_t{k} * agree > most_saved) most_saved = uint64_t{k} * agree, best = k;
  }
  uint64_t mask = 0;
  for (uint32_t rank = 0; rank < best; ++rank) mask |= uint64_t{1} << order[rank];
  const uint64_t values = majority & mask;
  std::memcpy(&masks.mask[offset], &mask, chunk_bytes);
  std::memcpy(&masks.values[offset], &values, chunk_bytes);
}

Masks fit_masks(const Sample& sample, const RowNumbers& rows, uint32_t chunk_bytes) {
  Masks masks{std::vector<uint8_t>(sample.row_bytes), std::vector<uint8_t>(sample.row_bytes)};
  for (uint64_t offset = 0; offset < sample.row_bytes; offset += chunk_bytes)
    fit_chunk(sample, rows, offset, chunk_bytes, masks);
  return masks;
}

uint64_t saved_bits(const Sample& sample, uint32_t row, uint32_t chunk_bytes, const Masks& masks) {
  uint64_t saved = 0;
  for (uint64_t offset = 0; offset < sample.row_bytes; offset += chunk_bytes) {
    const uint64_t mask = load(&masks.mask[offset], chunk_bytes);
    if ((load(sample.row(row) + offset, chunk_bytes) & mask) == load(&masks.values[offset], chunk_bytes))
      saved += static_cast<uint64_t>(std::popcount(mask));
  }
  return saved;
}

uint64_t distance(const uint8_t* a, const uint8_t* b, uint64_t bytes) {
  uint64_t bits = 0;
  for (uint64_t at = 0; at < bytes; at += 8) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(bytes - at, 8));
    bits += static_cast<uint64_t>(std::popcount(load(a + at, count) ^ load(b + at, count)));
  }
  return bits;
}

// Rows far from each other: each next one is the farthest from those before. Assigns every row to the nearest.
std::vector<RowNumbers> seed_clusters(const Sample& sample, const RowNumbers& rows, uint32_t clusters) {
  std::vector<uint64_t> nearest(rows.size(), ~uint64_t{0});
  std::vector<uint32_t> assigned(rows.size(), 0);
  uint32_t seed = rows[rows.size() / 2];
  uint32_t used = 0;
  for (uint32_t cluster = 0; cluster < clusters; ++cluster, ++used) {
    uint64_t farthest = 0;
    uint32_t next = seed;
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint64_t bits = distance(sample.row(rows[i]), sample.row(seed), sample.row_bytes);
      if (bits < nearest[i]) nearest[i] = bits, assigned[i] = cluster;
      if (nearest[i] > farthest) farthest = nearest[i], next = rows[i];
    }
    if (farthest == 0) {
      ++used;
      break;
    }
    seed = next;
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

Fit fit_clusters(const Sample& sample, const RowNumbers& rows, uint32_t chunk_bytes, uint32_t clusters) {
  std::vector<RowNumbers> members = seed_clusters(sample, rows, clusters);
  Fit best{{}, 0};
  for (int round = 0; round < rounds; ++round) {
    std::vector<Masks> masks;
    masks.reserve(members.size());
    for (const RowNumbers& cluster : members)
      if (!cluster.empty()) masks.push_back(fit_masks(sample, cluster, chunk_bytes));
    std::vector<RowNumbers> next(masks.size());
    uint64_t saved = 0;
    for (const uint32_t row : rows) {
      uint64_t most = 0;
      size_t to = 0;
      for (size_t cluster = 0; cluster < masks.size(); ++cluster) {
        const uint64_t bits = saved_bits(sample, row, chunk_bytes, masks[cluster]);
        if (bits > most) most = bits, to = cluster;
      }
      saved += most;
      next[to].push_back(row);
    }
    const size_t uncoded_bits = 8 * sample.row_bytes + sample.row_bytes / chunk_bytes;  // with the participation bits
    const double bits =
        static_cast<double>(rows.size()) * (static_cast<double>(uncoded_bits) + header_bits(masks.size())) -
        static_cast<double>(saved);
    if (!best.clusters.empty() && bits >= best.bits) break;
    best = {std::move(masks), bits};
    if (members.size() == 1) break;
    members = std::move(next);
  }
  return best;
}

}  // namespace

void fit_invariant(const Sample& sample, uint32_t chunk_bytes, uint32_t clusters, Model& model) {
  const uint64_t count = std::min(sample.count, most_rows);
  RowNumbers rows;
  rows.reserve(count);
  for (uint64_t i = 0; i < count; ++i) rows.push_back(static_cast<uint32_t>(i * sample.count / count));

  Fit best{{}, 0};
  const auto consider = [&](uint32_t chunk, uint32_t wanted) {
    if (sample.row_bytes % chunk != 0) return;
    Fit fit = fit_clusters(sample, rows, chunk, wanted);
    if (!best.clusters.empty() && fit.bits >= best.bits) return;
    best = std::move(fit);
    model.chunk_bytes = chunk;
  };
  for (const uint32_t chunk : {4u, 8u, 2u, 1u}) {
    if (chunk_bytes != 0 && chunk != chunk_bytes) continue;
    consider(chunk, clusters == 0 ? 1 : clusters);
    if (clusters == 0) consider(chunk, tried_clusters);
  }

  model.clusters = static_cast<uint32_t>(best.clusters.size());
  for (const Masks& masks : best.clusters) {
    model.masks.insert(model.masks.end(), masks.mask.begin(), masks.mask.end());
    model.values.insert(model.values.end(), masks.values.begin(), masks.values.end());
  }
}

}  // namespace narrowcast::store
