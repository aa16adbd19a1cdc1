#include "plan/verify/clocks.h"

#include <algorithm>

namespace narrowcast::plan::verify {

Rows::Rows(size_t components, int hash_bits)
    : size_(components <= most_in_one_leaf ? components : size_t{1} << size_bits),
      hash_shift_(32 - hash_bits),
      values_(size_) {
  for (size_t covered = size_; covered < components; covered <<= size_bits) ++root_level_;
  const size_t hashes = size_t{1} << hash_bits;
  if (root_level_ > 0) {
    const size_t levels = static_cast<size_t>(root_level_) + 1;
    spend(levels * hashes);
    memory_.grow(levels * hashes * sizeof(Joins));
    last_joins_.assign(levels, std::vector<Joins>(hashes));
  }
  references_.push_back(1 + last_joins_.size() * hashes * std::tuple_size_v<Joins> * 3);
}

void Rows::release(uint32_t node, int level) {
  if (--references_[node] != 0) return;
  if (level > 0)
    for (size_t i = 0; i < size_; ++i) release(at(node)[i], level - 1);
  free_.push_back(node);
}

// The same, as a node that nothing else refers to.
uint32_t Rows::writable(uint32_t node, int level) {
  if (references_[node] == 1 && node != zeros) return node;
  if (free_.empty()) {
    memory_.grow(size_ * sizeof(uint32_t) + sizeof(uint64_t));
    free_.push_back(static_cast<uint32_t>(references_.size()));
    values_.resize(values_.size() + size_);
    references_.push_back(0);
  }
  spend(size_ / 4);
  const uint32_t copy = free_.back();
  free_.pop_back();
  references_[copy] = 1;
  std::copy_n(at(node), size_, at(copy));
  if (level > 0)
    for (size_t i = 0; i < size_; ++i) retain(at(copy)[i]);
  release(node, level);
  return copy;
}

uint32_t Rows::raised(uint32_t node, int level, size_t component, uint32_t epoch) {
  node = writable(node, level);
  const size_t part = slot(component, level);
  const uint32_t value = level == 0 ? epoch : raised(at(node)[part], level - 1, component, epoch);
  at(node)[part] = value;
  return node;
}

uint32_t Rows::joined_leaf(uint32_t node, uint32_t other) {
  spend(size_ / 4);
  const uint32_t *const own = at(node), *const from = at(other);
  uint32_t behind = 0, ahead = 0;  // 0: nowhere
  for (size_t i = 0; i < size_; ++i) {
    const uint32_t later = std::max(own[i], from[i]);
    behind |= later ^ own[i];
    ahead |= later ^ from[i];
  }
  if (behind == 0) return node;
  if (ahead == 0) {
    retain(other);
    release(node, 0);
    return other;
  }
  node = writable(node, 0);
  for (size_t i = 0; i < size_; ++i) at(node)[i] = std::max(at(node)[i], at(other)[i]);
  return node;
}

uint32_t Rows::joined(uint32_t node, uint32_t other, int level) {
  if (node == other || other == zeros) return node;
  if (node == zeros) {
    retain(other);
    release(node, level);
    return other;
  }
  return references_[node] == 1 || last_joins_.empty() ? joined_parts(node, other, level)
                                                       : joined_shared(node, other, level);
}

// Replicas of a group join the same nodes. If all get the same node as the result, their next joins are the same, too.
uint32_t Rows::joined_shared(uint32_t node, uint32_t other, int level) {
  for (const Join& last : last_joins(node, other, level))
    if (last.node == node && last.other == other) {
      retain(last.result);
      release(node, level);
      return last.result;
    }
  retain(node);  // so that it is not changed in place
  const Join join{node, other, joined_parts(node, other, level)};
  retain(other);
  retain(join.result);
  Joins& same_hash = last_joins(node, other, level);
  const Join oldest = same_hash.back();
  std::shift_right(same_hash.begin(), same_hash.end(), 1);
  same_hash.front() = join;
  for (const uint32_t held : {oldest.node, oldest.other, oldest.result}) release(held, level);
  return join.result;
}

uint32_t Rows::joined_parts(uint32_t node, uint32_t other, int level) {
  if (level == 0) return joined_leaf(node, other);
  spend(size_);
  bool is_other = true;
  for (size_t i = 0; i < size_; ++i) {
    const uint32_t part = at(node)[i], others = at(other)[i];
    if (part == others) continue;
    uint32_t result;
    if (references_[node] == 1) {
      result = joined(part, others, level - 1);
      at(node)[i] = result;
    } else {
      retain(part);  // the node is still part of other rows
      result = joined(part, others, level - 1);
      if (result != part) node = writable(node, level);
      release(std::exchange(at(node)[i], result), level - 1);
    }
    is_other &= result == others;
  }
  if (!is_other) return node;
  retain(other);
  release(node, level);
  return other;
}

void Row::raise(Rows& rows, size_t component, uint32_t epoch) {
  if ((*this)[component] >= epoch) return;
  if (rows_ == nullptr) {
    rows.retain(Rows::zeros);
    *this = Row(&rows, Rows::zeros);
  }
  root_ = rows.raised(root_, rows.root_level_, component, epoch);
}

void Row::join(Rows& rows, const Row& other) {
  if (other.rows_ == nullptr) return;
  if (rows_ == nullptr)
    *this = other;
  else
    root_ = rows.joined(root_, other.root_, rows.root_level_);
}

}  // namespace narrowcast::plan::verify
