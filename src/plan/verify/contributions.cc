#include "plan/verify/contributions.h"

#include <algorithm>
#include <bit>

namespace narrowcast::plan::verify {

Contributions::Set Contributions::single(uint32_t chunk, int rank) {
  scratch_.assign(words_ + 1, 0);
  scratch_[0] = chunk;
  scratch_[1 + static_cast<size_t>(rank) / 64] |= uint64_t{1} << (rank % 64);
  return intern();
}

Contributions::Set Contributions::all(uint32_t chunk, int ranks) {
  scratch_.assign(words_ + 1, 0);
  scratch_[0] = chunk;
  for (int rank = 0; rank < ranks; ++rank) scratch_[1 + static_cast<size_t>(rank) / 64] |= uint64_t{1} << (rank % 64);
  return intern();
}

Contributions::Union Contributions::unite(Set a, Set b) {
  const size_t size = words_ + 1;
  size_t i = starts_[a], j = starts_[b];
  const size_t a_end = starts_[a + 1], b_end = starts_[b + 1];
  spend(20 + 4 * (a_end - i + b_end - j));
  bool overlaps = false;
  scratch_.clear();
  while (i < a_end || j < b_end) {
    const bool take_a = i < a_end && (j == b_end || storage_[i] <= storage_[j]);
    const bool take_b = j < b_end && (i == a_end || storage_[j] <= storage_[i]);
    const size_t source = take_a ? i : j;
    const size_t begin = scratch_.size();
    scratch_.insert(scratch_.end(), storage_.begin() + static_cast<ptrdiff_t>(source),
                    storage_.begin() + static_cast<ptrdiff_t>(source + size));
    if (take_a && take_b)
      for (size_t word = 1; word < size; ++word) {
        overlaps |= (scratch_[begin + word] & storage_[j + word]) != 0;
        scratch_[begin + word] |= storage_[j + word];
      }
    if (take_a) i += size;
    if (take_b) j += size;
  }
  return {intern(), overlaps};
}

Contributions::Entry Contributions::entry(Set set, size_t index) const {
  const uint64_t* start = &storage_[starts_[set] + index * (words_ + 1)];
  return {static_cast<uint32_t>(start[0]), {start + 1, words_}};
}

uint64_t Contributions::hash(const uint64_t* words, size_t count) const {
  uint64_t hash = count;
  for (size_t i = 0; i < count; ++i) {
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

Contributions::Set Contributions::intern() {
  spend(50 + 4 * scratch_.size());
  const uint64_t key = hash(scratch_.data(), scratch_.size());
  size_t slot = key & (table_.size() - 1);
  for (; table_[slot] != empty; slot = (slot + 1) & (table_.size() - 1)) {
    const Set set = table_[slot];
    if (hashes_[set] == key && starts_[set + 1] - starts_[set] == scratch_.size() &&
        std::equal(scratch_.begin(), scratch_.end(), storage_.begin() + static_cast<ptrdiff_t>(starts_[set])))
      return set;
  }
  memory_.grow(scratch_.size() * sizeof(uint64_t) + sizeof(Bounds) + 4 * sizeof(uint64_t));
  const auto set = static_cast<Set>(hashes_.size());
  table_[slot] = set;
  hashes_.push_back(key);
  storage_.insert(storage_.end(), scratch_.begin(), scratch_.end());
  starts_.push_back(storage_.size());
  Bounds bounds{INT32_MAX, -1};
  for (size_t i = 0; i < scratch_.size(); ++i) {
    const size_t word = i % (words_ + 1);
    if (word == 0 || scratch_[i] == 0) continue;
    const int base = static_cast<int>(64 * (word - 1));
    bounds.lowest = std::min(bounds.lowest, base + std::countr_zero(scratch_[i]));
    bounds.highest = std::max(bounds.highest, base + 63 - std::countl_zero(scratch_[i]));
  }
  bounds_.push_back(bounds);
  if (2 * hashes_.size() > table_.size()) grow();
  return set;
}

void Contributions::grow() {
  table_.assign(2 * table_.size(), empty);
  for (Set set = 0; set < hashes_.size(); ++set) {
    size_t slot = hashes_[set] & (table_.size() - 1);
    while (table_[slot] != empty) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = set;
  }
}

bool Contributions::is_of_all(Set set, int ranks) const {
  const Entry first = entry(set, 0);
  for (int rank = 0; rank < ranks; ++rank)
    if (!first.has(rank)) return false;
  return true;
}

bool Contributions::contains(Set set, uint32_t chunk, int rank) const {
  spend(entries(set));
  for (size_t i = 0; i < entries(set); ++i)
    if (entry(set, i).chunk == chunk) return entry(set, i).has(rank);
  return false;
}

Contributions::Contribution Contributions::first_of(Set a, Set b, bool is_in_b) const {
  for (size_t i = 0; i < entries(a); ++i) {
    const Entry of_a = entry(a, i);
    for (int rank = 0; rank < ranks_; ++rank)
      if (of_a.has(rank) && contains(b, of_a.chunk, rank) == is_in_b) return {of_a.chunk, rank};
  }
  return {0, -1};
}

std::string Contributions::describe(Contribution contribution) {
  return "input chunk " + std::to_string(contribution.chunk) + " of rank " + std::to_string(contribution.rank);
}

std::string Contributions::difference(Set found, Set wanted) const {
  const Contribution missing = first_missing(wanted, found), extra = first_missing(found, wanted);
  std::string text;
  if (missing.rank >= 0) text += "lacks " + describe(missing);
  if (extra.rank >= 0)
    text += std::string(text.empty() ? "contains " : " and contains ") + describe(extra) +
            (text.empty() ? ", which does not belong there" : " instead");
  return text;
}

}  // namespace narrowcast::plan::verify
