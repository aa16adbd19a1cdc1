// Vector clocks. A row has one component for each actor whose accesses other actors could conflict with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/budget.h"

namespace narrowcast::plan::verify {

class Rows;

// A row: a vector of epochs, all zeros at first.
class Row {
 public:
  Row() = default;
  Row(const Row& other);
  Row(Row&& other) noexcept : rows_(std::exchange(other.rows_, nullptr)), root_(other.root_) {}
  Row& operator=(Row other) noexcept {
    std::swap(rows_, other.rows_);
    std::swap(root_, other.root_);
    return *this;
  }
  ~Row();

  uint32_t operator[](size_t component) const;
  void raise(Rows& rows, size_t component, uint32_t epoch);
  void join(Rows& rows, const Row& other);

 private:
  Row(Rows* rows, uint32_t root) : rows_(rows), root_(root) {}

  Rows* rows_ = nullptr;  // null: all zeros
  uint32_t root_ = 0;
};

// The memory of rows; outlives them.
//
// Rows are trees of nodes, which they share until they change (path copying: Driscoll et al., Making data structures
// persistent, 1989). So a row takes little more memory than what it does not have in common with the one that it was
// copied from, and a join only visits what differs. Of a plan with many groups, each group learns of few others.
class Rows {
 public:
  // hash_bits: 4 * 2^hash_bits joins are remembered on each level.
  explicit Rows(size_t components, int hash_bits = 16);
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

 private:
  friend class Row;

  // A leaf has components, another node has nodes of the level below, which is 0 for leaves. The first node stands for
  // zeros everywhere, on all levels. Rows of few components are one leaf: one loop takes less time than many nodes.
  static constexpr size_t most_in_one_leaf = 4096;
  static constexpr int size_bits = 5;
  static constexpr uint32_t zeros = 0;

  uint32_t* at(uint32_t node) { return &values_[node * size_]; }
  const uint32_t* at(uint32_t node) const { return &values_[node * size_]; }
  size_t slot(size_t component, int level) const {
    return root_level_ == 0 ? component : component >> level * size_bits & (size_ - 1);
  }
  uint32_t component(uint32_t root, size_t number) const {
    for (int level = root_level_; level > 0; --level) root = at(root)[slot(number, level)];
    return at(root)[slot(number, 0)];
  }

  void retain(uint32_t node) { ++references_[node]; }
  void release(uint32_t node, int level);
  // These take over the caller's reference to `node` and return a reference to the result.
  uint32_t writable(uint32_t node, int level);
  uint32_t raised(uint32_t node, int level, size_t component, uint32_t epoch);
  uint32_t joined(uint32_t node, uint32_t other, int level);
  uint32_t joined_shared(uint32_t node, uint32_t other, int level);
  uint32_t joined_parts(uint32_t node, uint32_t other, int level);
  uint32_t joined_leaf(uint32_t node, uint32_t other);

  // A join that was computed. It holds references to all three nodes.
  struct Join {
    uint32_t node = zeros, other = zeros, result = zeros;
  };
  // Joins whose nodes have the same hash, the last one first.
  using Joins = std::array<Join, 4>;
  Joins& last_joins(uint32_t node, uint32_t other, int level) {
    return last_joins_[static_cast<size_t>(level)][(node * 0x9e3779b1u ^ other * 0x85ebca6bu) >> hash_shift_];
  }

  HeldMemory memory_;
  size_t size_;  // of a node
  int root_level_ = 0, hash_shift_;
  std::vector<std::vector<Joins>> last_joins_;  // by level and hash
  std::vector<uint32_t> values_;                // of all nodes
  std::vector<uint64_t> references_;            // by node
  std::vector<uint32_t> free_;                  // nodes
};

inline Row::Row(const Row& other) : rows_(other.rows_), root_(other.root_) {
  if (rows_ != nullptr) rows_->retain(root_);
}
inline Row::~Row() {
  if (rows_ != nullptr) rows_->release(root_, rows_->root_level_);
}
inline uint32_t Row::operator[](size_t component) const {
  return rows_ == nullptr ? 0 : rows_->component(root_, component);
}

}  // namespace narrowcast::plan::verify
