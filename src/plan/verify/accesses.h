// The last accesses to each cell of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

// The shape of an access. The threads of a group divide accesses of the same shape in the same way.
struct Shape {
  uint32_t first = 0;  // cell
  uint32_t cells = 0;
  bool packets = false;
  bool operator==(const Shape&) const = default;
};

struct Access {
  uint32_t actor = none;
  uint32_t epoch = 0;
  Shape shape;
};

// Readers since the last write, in a list.
class Accesses {
 public:
  struct Cell {
    Access write;
    uint32_t readers = none;       // head of the list
    uint32_t packet_stamp = none;  // of the last write, if it wrote packets
    uint32_t packet_call = none;   // in which it did
  };

  explicit Accesses(size_t cells) : cells_(cells) {}

  Cell& operator[](size_t cell) { return cells_[cell]; }

  // Removes the readers for which remove(access) is true.
  template <typename Remove>
  void filter_readers(Cell& cell, Remove remove) {
    for (uint32_t* link = &cell.readers; *link != none;) {
      spend(5);
      const uint32_t node = *link;
      if (remove(nodes_[node].access)) {
        *link = nodes_[node].next;
        nodes_[node].next = free_;
        free_ = node;
      } else {
        link = &nodes_[node].next;
      }
    }
  }
  void add_reader(Cell& cell, const Access& access) {
    uint32_t node = free_;
    if (node == none) {
      node = static_cast<uint32_t>(nodes_.size());
      memory_.grow(sizeof(Node));
      nodes_.push_back({});
    } else {
      free_ = nodes_[node].next;
    }
    nodes_[node] = {access, cell.readers};
    cell.readers = node;
  }
  // The first reader for which wanted(access) is true; NULL if there is none.
  template <typename Wanted>
  const Access* find_reader(const Cell& cell, Wanted wanted) const {
    for (uint32_t node = cell.readers; node != none; node = nodes_[node].next) {
      spend(5);
      if (wanted(nodes_[node].access)) return &nodes_[node].access;
    }
    return nullptr;
  }

 private:
  struct Node {
    Access access;
    uint32_t next = none;
  };
  HeldMemory memory_;
  std::vector<Cell> cells_;
  std::vector<Node> nodes_;
  uint32_t free_ = none;
};

}  // namespace narrowcast::plan::verify
