// Sets of contributions (input chunks, each with a set of ranks), interned: equal sets have the same number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/budget.h"

namespace narrowcast::plan::verify {

class Contributions {
 public:
  // A set is a list of entries in the order of their chunks: the chunk, then a bit for each rank.
  using Set = uint32_t;

  explicit Contributions(int ranks)
      : ranks_(ranks), words_((static_cast<size_t>(ranks) + 63) / 64), table_(1024, empty) {}

  Set single(uint32_t chunk, int rank);
  // Of all ranks.
  Set all(uint32_t chunk, int ranks);

  struct Union {
    Set set;
    bool overlaps;  // a contribution is in both
  };
  Union unite(Set a, Set b);

  struct Entry {
    uint32_t chunk;
    std::span<const uint64_t> ranks;
    bool has(int rank) const { return ranks[static_cast<size_t>(rank) / 64] >> (rank % 64) & 1; }
  };
  size_t entries(Set set) const { return (starts_[set + 1] - starts_[set]) / (words_ + 1); }
  Entry entry(Set set, size_t index) const;

  // Whether the first chunk of the set comes from all ranks.
  bool is_of_all(Set set, int ranks) const;
  bool contains(Set set, uint32_t chunk, int rank) const;
  struct Contribution {
    uint32_t chunk;
    int rank;  // -1: there is none
  };
  // The first contribution of a that b lacks, and the first one that both have.
  Contribution first_missing(Set a, Set b) const { return first_of(a, b, false); }
  Contribution first_common(Set a, Set b) const { return first_of(a, b, true); }
  bool is_subset(Set a, Set b) const { return first_missing(a, b).rank < 0; }
  // "input chunk 1 of rank 2".
  static std::string describe(Contribution contribution);
  // What distinguishes a set from the wanted one: "lacks input chunk 1 of rank 2".
  std::string difference(Set found, Set wanted) const;
  int lowest_rank(Set set) const { return bounds_[set].lowest; }
  int highest_rank(Set set) const { return bounds_[set].highest; }

 private:
  static constexpr uint32_t empty = UINT32_MAX;
  struct Bounds {
    int lowest, highest;
  };

  // The first contribution of a that b has, or lacks.
  Contribution first_of(Set a, Set b, bool is_in_b) const;
  // The number of the set in scratch_.
  Set intern();
  uint64_t hash(const uint64_t* words, size_t count) const;
  void grow();

  HeldMemory memory_;
  int ranks_;
  size_t words_;  // of the ranks of an entry
  std::vector<uint64_t> storage_;
  std::vector<size_t> starts_{0};
  std::vector<Bounds> bounds_;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> table_;  // open addressing
  std::vector<uint64_t> scratch_;
};

}  // namespace narrowcast::plan::verify
