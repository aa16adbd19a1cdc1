// Vector clocks. A row has one component for each actor whose accesses other actors could conflict with. Rows are
// shared until they change, and reused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace narrowcast::plan::verify {

class Rows;

// A reference to a row. Null references are all zeros.
class Row {
 public:
  Row() = default;
  Row(const Row& other);
  Row(Row&& other) noexcept : rows_(std::exchange(other.rows_, nullptr)), id_(other.id_) {}
  Row& operator=(Row other) noexcept {
    std::swap(rows_, other.rows_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~Row();

  uint32_t operator[](size_t component) const;
  void raise(Rows& rows, size_t component, uint32_t epoch);
  void join(Rows& rows, const Row& other);

 private:
  friend class Rows;
  Row(Rows* rows, uint32_t id) : rows_(rows), id_(id) {}
  void make_unique(Rows& rows);

  Rows* rows_ = nullptr;
  uint32_t id_ = 0;
};

// The memory of rows; outlives them.
class Rows {
 public:
  explicit Rows(size_t components) : components_(components) {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  size_t components() const { return components_; }

 private:
  friend class Row;

  uint32_t take() {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(values_.size()));
      values_.push_back(std::make_unique_for_overwrite<uint32_t[]>(std::max<size_t>(components_, 1)));
      references_.push_back(0);
    }
    const uint32_t id = free_.back();
    free_.pop_back();
    references_[id] = 1;
    return id;
  }

  size_t components_;
  std::vector<std::unique_ptr<uint32_t[]>> values_;
  std::vector<uint32_t> references_, free_;
};

inline Row::Row(const Row& other) : rows_(other.rows_), id_(other.id_) {
  if (rows_ != nullptr) ++rows_->references_[id_];
}
inline Row::~Row() {
  if (rows_ != nullptr && --rows_->references_[id_] == 0) rows_->free_.push_back(id_);
}
inline uint32_t Row::operator[](size_t component) const {
  return rows_ == nullptr ? 0 : rows_->values_[id_][component];
}
inline void Row::make_unique(Rows& rows) {
  if (rows_ != nullptr && rows.references_[id_] == 1) return;
  const uint32_t id = rows.take();
  if (rows_ == nullptr)
    std::fill_n(rows.values_[id].get(), rows.components_, 0u);
  else
    std::copy_n(rows.values_[id_].get(), rows.components_, rows.values_[id].get());
  *this = Row(&rows, id);
}
inline void Row::raise(Rows& rows, size_t component, uint32_t epoch) {
  if ((*this)[component] >= epoch) return;
  make_unique(rows);
  rows.values_[id_][component] = epoch;
}
inline void Row::join(Rows& rows, const Row& other) {
  if (other.rows_ == nullptr || (rows_ != nullptr && id_ == other.id_)) return;
  if (rows_ == nullptr) {
    *this = other;
    return;
  }
  make_unique(rows);
  uint32_t* to = rows.values_[id_].get();
  const uint32_t* from = rows.values_[other.id_].get();
  for (size_t i = 0; i < rows.components_; ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace narrowcast::plan::verify
